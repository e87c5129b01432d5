"""Moving MNIST (paper, section "Moving MNIST", Fig. 3): whether rollouts in jumps keep the digit and its direction."""
