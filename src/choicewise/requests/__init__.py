"""From items and protocols to questions in tokens: rendered, fitted into the window, in blocks.

``ask.py`` has for each reading what it asks.
"""
