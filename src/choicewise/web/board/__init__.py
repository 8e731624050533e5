"""The board as a value: runs below some folders, and their models × protocols.  Nothing here knows of HTTP."""
