"""Trainings on separating intervals of many lengths, from short to long.

Up to any time in the separating interval, the observations do not depend on its final length. One training therefore
serves all intervals of the grid: the belief is probed after 20 + interval observations.
"""
