"""The charts of the analyses.

Each is a drawing in light and dark, for the page and for ``plot``.
"""
