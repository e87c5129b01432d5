"""Training config shared by moving MNIST, MiniPacman and the first-person experiment: Muon and a cosine schedule."""

from tdvae.training import TrainConfig

MUON = TrainConfig(
    optimizer="muon",
    muon_matrices="all",
    learning_rate=2e-3,
    muon_learning_rate=0.02,
    schedule="cosine",
    warmup=20,
    validate_every=500,
    checkpoint_every=500,
    accelerator="cpu",
)
