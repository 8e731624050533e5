"""Read the logs of other tools, with a module for each tool, and make runs of them.

``files.py`` finds the reader, which returns :class:`choicewise.logs.Log`; ``checks.py`` checks it,
and ``import_log.py`` writes the run.
"""
