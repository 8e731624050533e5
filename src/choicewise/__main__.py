"""``python -m choicewise``: the command line."""

from choicewise.cli import main

main()
