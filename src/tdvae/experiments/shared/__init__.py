"""Code shared by the experiments: the `Experiment` base class, the runner, evaluation of saved runs, probes."""
