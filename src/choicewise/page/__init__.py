"""One HTML page of a run or several, with its charts: content, view data, and the document itself.

``document.py`` puts the page together; ``study.py`` reads the runs that it is about.
"""
