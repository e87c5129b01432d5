"""Network modules: dense maps, embeddings, belief networks, ladders and convolutions. They do not depend on a loss."""
