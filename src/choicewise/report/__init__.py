"""Results as tables and texts for a terminal."""
