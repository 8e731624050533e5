"""Scores while a model is trained.

Frozen bundles of requests, the evaluation inside a training loop, and callbacks of trainers.
"""

from choicewise.ports import Extension

EXTENSION = Extension("training", [])
