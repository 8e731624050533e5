"""Frozen sets of requests for engines of other people, and their answers as runs.

They lie behind ``running``, as a bundle is what an evaluation asks, and before all that may fill one in.
"""
