"""Choicewise inside a loop that trains a model: a bundle is asked of the module in memory.

``in_loop`` asks it and writes a run a step; ``callbacks`` calls that from the Trainer of transformers.
"""
