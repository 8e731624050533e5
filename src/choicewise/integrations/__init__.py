"""Choicewise inside other tools."""
