"""The paper's experiments: a folder each, `shared` for what they have in common, `registry` to find one by name."""
