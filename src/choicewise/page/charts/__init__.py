"""Charts as Vega-Lite specifications with their values: one file per kind that shares no code with
others.

``chart.py`` is what all kinds go by, and ``kinds.py`` draws the one that is named.
"""
