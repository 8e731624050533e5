"""Models in folders of weights, run with torch and transformers.

``folder_model.py`` opens a folder; ``local_model.py`` answers; ``paths.py`` are the ways to pass
tokens through the model, and ``selfcheck.py`` holds each of them against the plain way on the
user's own model before it is used.
"""
