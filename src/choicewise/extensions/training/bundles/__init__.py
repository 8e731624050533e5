"""Frozen requests for engines of other people, and their answers as runs."""
