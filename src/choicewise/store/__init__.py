"""Folders of runs on disk: how they are written so that a stop loses nothing, read back and examined.

``folder.py`` writes one, ``tables.py`` is what lies in it.
"""
