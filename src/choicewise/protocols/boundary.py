"""The names on the axis ``boundary``; :mod:`choicewise.tokens.boundary` says what they mean and does it."""

CORRECTED = ("heal", "word", "bytes")
"""Policies that correct the tokens of a continuation to the probability of its text, or of its words."""

BOUNDARIES = ("joint", "moved-space", "separate", "count", "lcp", "last-token", *CORRECTED)
"""Every policy."""

COUNTING = ("joint", "count")
"""Policies that count the context's tokens off, so that a token across its end takes text from the continuation."""

APART = "apart"
"""What stands in for those after a null context that holds the space of its continuations; no value of the axis."""
