"""MMLU's 57 subjects in their 17 subcategories and 4 categories (hendrycks/test categories.py@4450500)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

Categories = Mapping[str, Mapping[str, Sequence[str]]]
"""Category → its subcategories → their subjects, in the order in which reports print them."""

MMLU: Final[Categories] = {
    "STEM": {
        "physics": ["astronomy", "college_physics", "conceptual_physics", "high_school_physics"],
        "chemistry": ["college_chemistry", "high_school_chemistry"],
        "biology": ["college_biology", "high_school_biology"],
        "computer science": [
            "college_computer_science",
            "computer_security",
            "high_school_computer_science",
            "machine_learning",
        ],
        "math": [
            "abstract_algebra",
            "college_mathematics",
            "elementary_mathematics",
            "high_school_mathematics",
            "high_school_statistics",
        ],
        "engineering": ["electrical_engineering"],
    },
    "humanities": {
        "history": [
            "high_school_european_history",
            "high_school_us_history",
            "high_school_world_history",
            "prehistory",
        ],
        "philosophy": [
            "formal_logic",
            "logical_fallacies",
            "moral_disputes",
            "moral_scenarios",
            "philosophy",
            "world_religions",
        ],
        "law": ["international_law", "jurisprudence", "professional_law"],
    },
    "social sciences": {
        "politics": [
            "high_school_government_and_politics",
            "public_relations",
            "security_studies",
            "us_foreign_policy",
        ],
        "culture": ["human_sexuality", "sociology"],
        "economics": ["econometrics", "high_school_macroeconomics", "high_school_microeconomics"],
        "geography": ["high_school_geography"],
        "psychology": ["high_school_psychology", "professional_psychology"],
    },
    "other": {
        "other": ["global_facts", "miscellaneous", "professional_accounting"],
        "business": ["business_ethics", "management", "marketing"],
        "health": [
            "anatomy",
            "clinical_knowledge",
            "college_medicine",
            "human_aging",
            "medical_genetics",
            "nutrition",
            "professional_medicine",
            "virology",
        ],
    },
}
"""In the order of the original script, which prints the fourth category as "other (business, health, misc.)"."""


def categories_of(subjects: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """The part of MMLU's categories that holds some of ``subjects``; empty when none of them is MMLU's."""
    present = {
        category: {
            name: [subject for subject in members if subject in subjects]
            for name, members in subcategories.items()
            if not set(members).isdisjoint(subjects)
        }
        for category, subcategories in MMLU.items()
    }
    return {category: subcategories for category, subcategories in present.items() if subcategories}
