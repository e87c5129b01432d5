"""Building blocks: dense maps and embeddings, belief networks, the ladder. None knows of TD-VAE's loss."""
