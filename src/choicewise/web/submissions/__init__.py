"""Submissions over HTTP: the pages where models are submitted and followed, and what workers ask."""
