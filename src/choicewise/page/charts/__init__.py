"""Charts as Vega-Lite specifications with their values: one file per kind that shares no code with others."""
