"""All that is wrong with a dataset under some protocols, counted and named."""

from collections import Counter
from collections.abc import Iterable

from choicewise.errors import DataError

EXAMPLES = 3
"""Items that are named where many are wrong in the same way."""


class Problems:
    """Collects errors about items and subjects, in memory that does not grow with their number."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = {}
        self._counts: dict[str, Counter[str]] = {}

    def add(self, errors: Iterable[tuple[str, DataError]], subject: str, prompt: str) -> None:
        """What is wrong in ``subject`` for one ``prompt``, each with the name of the item or subject it is about."""
        for name, error in errors:
            text = str(error)
            kind = text.replace(name, "").replace(repr(subject), "")
            self._counts.setdefault(kind, Counter())[prompt] += 1
            examples = self._examples.setdefault(kind, [])
            if len(examples) < EXAMPLES and text not in examples:
                examples.append(text)

    def refuse(self, dataset: str) -> None:
        """DataError that lists everything, if anything is wrong."""
        lines: list[str] = []
        for kind, examples in self._examples.items():
            more = max(self._counts[kind].values()) - len(examples)  # several prompts mostly meet the same items
            lines += [*examples, *([f"... and {more} more like it"] if more > 0 else [])]
        if len(lines) == 1:
            raise DataError(lines[0])
        if lines:
            raise DataError(f"{dataset} can't be asked under these protocols", lines)
