"""The numbers: scores, decisions, intervals and tests, all computed from observations.

Nothing here reads a file or asks a model, so every number can be computed again from a run folder.
"""
