"""Numbers from stored runs, from files alone: rows, intervals, comparisons and explanations, without a model.

``run.py`` opens a run; ``rows.py`` are its numbers; everything else compares rows.
"""
