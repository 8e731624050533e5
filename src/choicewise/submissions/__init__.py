"""Models that people submit to a board, and the workers that evaluate them.  Nothing here answers HTTP."""
