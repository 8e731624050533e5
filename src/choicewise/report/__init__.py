"""Numbers as text for the terminal: tables and sentences.

``tables.py`` prints the rows; ``findings.py`` says in sentences what is striking about them.
"""
