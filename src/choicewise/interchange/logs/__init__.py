"""Other tools' logs as values, and from them to run folders."""
