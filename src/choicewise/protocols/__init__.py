"""Published protocols as declared values, with citations: prompt, reading, score and metric.

Nothing here asks a model or computes a score.  The protocols are the files of ``catalog/`` and
``suites/``.
"""
