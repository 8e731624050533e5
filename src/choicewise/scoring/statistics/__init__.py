"""How far a number can be trusted: intervals, paired comparisons, ranks, validity.  One question per file."""
