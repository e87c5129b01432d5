"""Run folders: the only code that reads and writes config.json, metrics.jsonl, checkpoints and stored data.

Files are written atomically and read with limits. Symbolic links inside a run folder are not followed, because a run
folder may come from somebody else.
"""

from tdvae.storage.run_folder import RunFolder

__all__ = ["RunFolder"]
