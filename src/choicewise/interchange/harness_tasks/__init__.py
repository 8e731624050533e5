"""Tasks of lm-evaluation-harness as protocols of ours.

``files.py`` reads their files, ``load.py`` asks the harness itself, ``as_protocols.py`` translates.
"""
