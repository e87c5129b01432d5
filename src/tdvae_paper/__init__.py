"""The paper's experiments, one package each; `shared` holds the common code, `registry` finds an experiment by name."""
