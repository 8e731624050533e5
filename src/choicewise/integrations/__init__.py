"""Choicewise inside other tools.

``lm_eval`` answers what lm-evaluation-harness asks of a model; ``training`` asks a model while it is trained.
"""
