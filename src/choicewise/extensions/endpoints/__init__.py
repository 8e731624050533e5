"""Models that another program computes.

Servers of completions, vLLM's engine, and endpoints that print decisions.
"""

from choicewise.ports import Extension

EXTENSION = Extension("endpoints", [])
