"""Other tools' logs: one reader per tool, and what makes a run of what it says.

``log.py`` is what every reader gives, ``import_log.py`` writes the run; ``files.py`` finds the reader.
"""
