"""The mechanisms that every room uses, each once: files, text, JSON, tables, caches, threads, child
processes, secrets.

A second way to replace a file, to run a child process or to write JSON does not belong anywhere
else.
"""
