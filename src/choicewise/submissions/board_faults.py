"""What can come of a request to a board in place of an answer."""

from __future__ import annotations

from choicewise.errors import ChoicewiseError


class BoardFailed(ChoicewiseError):
    """The board does not answer as asked, and another try is of no use now; what was computed stays on this machine."""


class OutOfReach(BoardFailed):
    """The board could not be reached, or was too busy, for as long as was waited."""


class BoardFull(BoardFailed):
    """The board's disk is full."""


class NotTaken(BoardFailed):
    """The board does not take what was sent."""
