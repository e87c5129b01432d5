"""Benchmarks: what training steps and jumps cost, as ratios and by size."""
