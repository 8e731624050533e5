"""The run folder on disk: blocks of observations, the manifest, atomic writes, resuming."""
