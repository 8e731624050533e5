"""Folders of runs on disk, written so that a stop loses nothing, read back and examined.

``folder.py`` writes a folder, and ``tables.py`` reads and writes the tables in it.
"""
