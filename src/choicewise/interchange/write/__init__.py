"""Formats of other tools that results are written in: one writer per tool."""
