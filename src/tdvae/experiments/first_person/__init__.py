"""First-person worlds (paper, section "DeepMind Lab environment", Figs. 5 and 6): beliefs about several futures, and
rollouts in jumps.

Two trainings of one model on one recording: ``tdvae`` on jumps of up to 40 steps, ``step_by_step`` on single steps,
which must be rolled out to look further. Actions are not given, neither of the past nor of the future.
"""

from tdvae.experiments.first_person.experiment import FirstPerson

EXPERIMENT = FirstPerson()
