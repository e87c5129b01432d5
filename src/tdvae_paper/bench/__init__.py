"""Benchmarks of training steps and jumps: ratios of times, and cost by size."""
