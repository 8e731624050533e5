"""The board: a server that shows folders of runs, takes submissions, and has them evaluated by workers."""
