"""What a score is: a function from observed continuations to one number per choice."""

from collections.abc import Callable
from dataclasses import dataclass

from choicewise.errors import UsageError
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats


@dataclass(frozen=True, slots=True)
class Score:
    """A named reduction.  ``function`` takes the observed continuations and, when ``conditional``, the null ones."""

    name: str
    function: Callable[..., Floats]
    conditional: bool

    def __call__(self, observed: Continuations, null: Continuations | None = None) -> Floats:
        """One number per row, float64 [rows]: greater is better, NaN is missing.

        Raises UsageError when a conditional score is not given the continuations after the null context, or when they
        have other rows than the observed ones.
        """
        if not self.conditional:
            return self.function(observed)
        if null is None:
            raise UsageError(f"the score {self.name} needs the continuations after its null context; none were given")
        if len(null.text) != len(observed.text):
            raise UsageError(f"{len(null.text)} continuations after the null context for {len(observed.text)} choices")
        return self.function(observed, null)
