"""Models that vLLM computes on this machine: the engine in a process of its own, and the ways to ask it.

``vllm_routes.py`` makes requests of questions and checks what comes of them; it never imports vLLM.
"""
