"""Evaluations: from what is asked to a finished folder, on one device, on several or on a Ray
cluster.

``evaluate.py`` is one run, ``sweep.py`` several; ``work.py`` is the loop that both go through.
"""
