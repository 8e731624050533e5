"""From observed log-probabilities to scores, decisions, metrics and intervals: pure functions of arrays.

``observed.py`` has the arrays, ``combine.py`` what each reading does with them, ``scores.py`` the named reductions.
"""
