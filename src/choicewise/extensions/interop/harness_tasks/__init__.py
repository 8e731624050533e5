"""Make protocols of ours of the tasks of lm-evaluation-harness.

``files.py`` reads their files as data, ``load.py`` loads them by the harness, ``rows.py`` makes
items and requests of their rows, and ``as_protocols.py`` makes datasets and protocols.
"""
