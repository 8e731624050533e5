"""Models that another program computes.

Servers of completions, vLLM's engine, and endpoints that print decisions.
"""
