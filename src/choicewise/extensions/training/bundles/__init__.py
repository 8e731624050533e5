"""Frozen requests for engines of other people, and their answers as runs.

They need ``running``, as a bundle is written by an evaluation whose model answers nothing.
"""
