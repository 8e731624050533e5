"""The published categories of subjects; MMLU's are declared in ``mmlu_categories.toml``."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files

Categories = Mapping[str, Mapping[str, Sequence[str]]]
"""Category → its subcategories → their subjects, in the order in which reports print them."""


@cache
def mmlu_categories() -> dict[str, dict[str, list[str]]]:
    """All 57 subjects of MMLU in their categories and subcategories."""
    return tomllib.loads((files("choicewise.data") / "mmlu_categories.toml").read_text(encoding="utf-8"))


def categories_of(subjects: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """The part of MMLU's categories that holds some of ``subjects``; empty when none of them is MMLU's."""
    present = {
        category: {
            name: [subject for subject in members if subject in subjects]
            for name, members in subcategories.items()
            if not set(members).isdisjoint(subjects)
        }
        for category, subcategories in mmlu_categories().items()
    }
    return {category: subcategories for category, subcategories in present.items() if subcategories}
