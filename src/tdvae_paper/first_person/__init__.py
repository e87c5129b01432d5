"""First-person worlds (paper, section "DeepMind Lab environment", Figs. 5 and 6): beliefs about several futures, and
rollouts in jumps.

The same model is trained twice on the same recording: ``tdvae`` on jumps of up to 40 steps, ``step_by_step`` on single
steps, so that longer predictions need a rollout. The models are not given actions, neither past nor future.
"""
