"""Formats of other tools that results are written in: one writer per tool.

``common.py`` has what they share; :mod:`choicewise.extensions.interop.export` lists them.
"""
