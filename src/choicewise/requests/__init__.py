"""From items and protocols to questions in tokens: rendered, fitted into the window, in blocks.

``prompters.py`` has for each reading what it asks.
"""
