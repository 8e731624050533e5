"""What a submission, a worker or the queue can meet; each message says what, where, and what to do next."""

from choicewise.errors import ChoicewiseError, StoreError


class Busy(StoreError):
    """The queue can't be written for the moment: another process holds it, or its disk is full.  Nothing was lost."""


class DiskFull(StoreError):
    """A part does not fit on the disk of the board."""


class TooMuch(ChoicewiseError):
    """Something sent is larger, or more, than the board takes."""


class LeaseLost(ChoicewiseError):
    """Whoever asks does not hold the submission (any more)."""


class NoSubmission(ChoicewiseError):
    """No submission has that id."""


class NotAllowed(ChoicewiseError):
    """The board takes no models from that source."""


class Refused(ChoicewiseError):
    """The model can't be evaluated, as can be told at once."""


class WrongPart(ChoicewiseError):
    """What was sent is not what its sha256 says, or a listing names what no run has."""


class Lacking(ChoicewiseError):
    """``sums``: the sha256 of what a listing names and nobody sent."""

    def __init__(self, sums: tuple[str, ...]) -> None:
        super().__init__(f"{len(sums)} of the listed parts are not here; send them, then the listing again")
        self.sums = sums


class Damaged(ChoicewiseError):
    """The runs that a worker sent are not whole."""
