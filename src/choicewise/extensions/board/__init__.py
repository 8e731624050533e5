"""The board: a server that shows folders of runs, takes submissions, and has them evaluated by workers.

``server.py`` serves what ``library.py`` knows of the folders; ``queue.py`` has the submissions.
"""

from choicewise.ports import Extension

EXTENSION = Extension("board", [])
