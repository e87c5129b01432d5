"""What is used of Stable-Baselines3. If it is missing, importing this module says which extra to install."""

from tdvae.errors import InputError

try:
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.running_mean_std import RunningMeanStd
    from stable_baselines3.common.utils import set_random_seed
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecNormalize
except ImportError as error:
    message = "agents: expected Stable-Baselines3, which is not installed; pip install 'tdvae[agents]'"
    raise InputError(message) from error

__all__ = [
    "PPO",
    "DummyVecEnv",
    "OnPolicyAlgorithm",
    "RunningMeanStd",
    "VecEnv",
    "VecEnvWrapper",
    "VecNormalize",
    "evaluate_policy",
    "set_random_seed",
]
