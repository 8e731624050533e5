"""The scores by name: how token log-probabilities become one number per choice.

A score is the function of its name, in the module that computes its kind; protocols/readings.py declares the names.
So a new score is one name there and one function here.  A decimal number that ends a name is the function's exponent.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType

from choicewise.protocols.readings import ACROSS, CONDITIONAL, SUMS, TOKENWISE
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores import conditional, means, tokens, trie
from choicewise.scoring.scores.score import Score

KINDS = ((SUMS, means), (TOKENWISE, tokens), (ACROSS, trie), (CONDITIONAL, conditional))
"""Names of scores, and the module with their functions."""


def _function(name: str, module: ModuleType) -> Callable[..., Floats]:
    stem, _, exponent = name.rpartition("_")
    return partial(getattr(module, stem), alpha=float(exponent)) if "." in exponent else getattr(module, name)


SCORES: dict[str, Score] = {
    name: Score(name, _function(name, module), conditional=module is conditional)
    for names, module in KINDS
    for name in names
}
