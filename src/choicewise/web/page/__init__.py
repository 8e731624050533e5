"""The page of one or several runs: one file that opens from disk."""
