"""Questions about finished runs.

Signal, audit, twins, invariance, reliability, checkpoints along training, and others.
"""

from choicewise.ports import Extension

EXTENSION = Extension("analyses", [])
