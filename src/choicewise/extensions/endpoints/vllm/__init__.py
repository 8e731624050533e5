"""Compute models by vLLM on this machine, with its engine in a process.

``vllm_routes.py`` makes requests of questions and checks the outputs; it never imports vLLM.
"""
