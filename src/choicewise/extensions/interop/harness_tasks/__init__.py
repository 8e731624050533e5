"""Tasks of lm-evaluation-harness as protocols of ours.

``files.py`` reads their files as data, ``load.py`` asks the harness itself, ``rows.py`` makes items and requests of
their rows, ``as_protocols.py`` puts data sets and protocols together.
"""
