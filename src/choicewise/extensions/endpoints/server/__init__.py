"""Models behind HTTP servers that speak the OpenAI, vLLM, SGLang or llama.cpp protocols.

``probe.py`` finds out what a server can answer and whether it is to be trusted; the routes are the ways to ask it.
"""
