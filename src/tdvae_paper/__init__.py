"""The paper's experiments, a module or package each. `experiment` and `runner` are shared, `registry` has the names."""
