"""Evaluations: from a job to finished run folders, on one device, on several or on a Ray cluster.

``job.py`` is the job, ``sweep.py`` evaluates its runs, and ``evaluate.py`` one of them.
"""
