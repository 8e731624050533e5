"""A run read back: evidence, measurements, values with intervals, ranks, comparisons."""
