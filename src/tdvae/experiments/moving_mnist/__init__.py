"""Moving MNIST (paper, section of that name, Fig. 3): roll out in jumps, keep the digit and its direction."""

from tdvae.experiments.moving_mnist.experiment import MovingMNIST

EXPERIMENT = MovingMNIST()
