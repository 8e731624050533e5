"""Questions: items, where they come from (files, folders, hubs, benchmarks) and what is odd about
them.

``dataset.py`` is what the other rooms read; ``open.py`` finds it by the name a user gives.
"""
