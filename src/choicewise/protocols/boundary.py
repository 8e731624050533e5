"""The names on the axis ``boundary``; :mod:`choicewise.tokens.boundary` says what they mean and does it."""

CORRECTED = ("heal", "word", "bytes")
"""Policies that correct the tokens of a continuation to the probability of its text, or of its words."""

BOUNDARIES = ("joint", "moved-space", "separate", "count", "lcp", "last-token", *CORRECTED)
"""Every policy."""

APART = "apart"
"""What stands for ``joint`` and ``count`` after a null context that holds the space of its continuations; no axis."""
