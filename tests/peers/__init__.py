"""Tests beside other tools, in an environment of their own: ``.venv-peers/bin/python -m pytest tests/peers``."""
