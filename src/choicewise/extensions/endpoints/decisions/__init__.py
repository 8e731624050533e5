"""Models behind decision endpoints: a state and typed questions go in, a probability per option comes out.

``dialects.py`` writes the requests and reads the answers of every format; it does no I/O.
"""
