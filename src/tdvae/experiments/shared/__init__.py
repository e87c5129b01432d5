"""What the experiments have in common: what an `Experiment` is, the one runner, evaluation of saved runs, probes."""
