"""Other tools' logs: one reader per tool, and what makes a run of what it says."""
