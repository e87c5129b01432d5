"""Moving MNIST (paper, section "Moving MNIST", Fig. 3): whether rollouts in jumps keep the digit and its direction."""

from tdvae_paper.moving_mnist.experiment import MovingMNIST

EXPERIMENT = MovingMNIST()
