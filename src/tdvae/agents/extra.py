"""Import of this module says which extra is missing, if Stable-Baselines3 is."""

from tdvae.errors import InputError

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    raise InputError(
        "agents: expected Stable-Baselines3, which is not installed; pip install 'tdvae[agents]'"
    ) from error
