"""Reading: files, tables and arrays as `Series`."""

from tdvae.forecasting.reading.sources import ARRAY_FILES, Source, read

__all__ = ["ARRAY_FILES", "Source", "read"]
