"""The folder where downloaded and generated data sets are cached."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(name: str) -> Path:
    """``$TDVAE_DATA/name`` if that variable is set, otherwise ``tdvae/name`` in the user's cache folder."""
    if chosen := os.environ.get("TDVAE_DATA"):
        return Path(chosen).expanduser() / name
    caches = {
        "darwin": "~/Library/Caches",
        "win32": os.environ.get("LOCALAPPDATA") or "~/AppData/Local",
    }.get(sys.platform, os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(caches).expanduser() / "tdvae" / name
