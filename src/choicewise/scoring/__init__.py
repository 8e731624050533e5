"""What counts: scores, decisions, metrics and statistics as pure functions on arrays."""
