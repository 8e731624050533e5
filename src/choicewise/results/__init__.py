"""Compute numbers, comparisons and explanations from the files of runs, without a model.

``run.py`` opens a run; ``rows.py`` are its numbers; everything else compares rows.
"""
