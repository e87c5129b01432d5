"""Trainings on one fixed separating interval each, without a curriculum, as in the paper.

Both objectives are trained with and without the time of the last switch: TD-VAE by the distribution of its pairs, the
next-step predictor by the weights of its time steps.
"""
