"""How many tokens go through a model: counted for progress and for what a run spent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False)
class Workload:
    """Input tokens ``computed`` so far, and those ``planned``: known to be needed for all that was asked, and computed.

    What plans adds to ``planned`` before it computes, at most as much as it may need, and corrects the sum afterwards.
    """

    computed: int = 0
    planned: int = 0

    @contextmanager
    def expecting(self, most: int) -> Iterator[None]:
        """Meanwhile plan ``most`` more tokens; afterwards those that were computed."""
        before = self.computed
        self.planned += most
        yield
        self.planned += self.computed - before - most

    def settle(self) -> None:
        """Nothing is asked any more."""
        self.planned = self.computed
