"""The scores by name: how token log-probabilities become one number per choice.

A score is the function of its name, in the module that computes its kind; protocols/readings.py declares the names.
So a new score is one name there and one function here.  A decimal number that ends a name is the function's exponent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from choicewise.errors import UsageError
from choicewise.protocols.readings import ACROSS, CONDITIONAL, SUMS, TOKENWISE
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores import conditional, means, tokens, trie


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


def _score(name: str, module: ModuleType) -> Score:
    stem, _, exponent = name.rpartition("_")
    powered = "." in exponent
    function = partial(getattr(module, stem), alpha=float(exponent)) if powered else getattr(module, name)
    return Score(name, function, module is conditional)


SCORES = {
    name: _score(name, module)
    for names, module in ((SUMS, means), (TOKENWISE, tokens), (ACROSS, trie), (CONDITIONAL, conditional))
    for name in names
}
