"""Use models behind HTTP servers that speak the OpenAI, vLLM, SGLang or llama.cpp protocols.

The routes are the ways to ask a server; ``probe.py`` finds out which of them are exact.
"""
