"""What a published protocol is: prompt, reading, score, decision and metric as declared values, with their citation.

Nothing here asks a model or computes a score.  The protocols themselves are the files of ``catalog/`` and ``suites/``.
"""
