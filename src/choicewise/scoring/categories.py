"""MMLU's 57 subjects in their 17 subcategories and 4 categories (hendrycks/test categories.py@4450500)."""

from __future__ import annotations

CATEGORIES: dict[str, tuple[str, ...]] = {
    "STEM": ("physics", "chemistry", "biology", "computer science", "math", "engineering"),
    "humanities": ("history", "philosophy", "law"),
    "social sciences": ("politics", "culture", "economics", "geography", "psychology"),
    "other": ("other", "business", "health"),
}
"""Category to its subcategories; the fourth is printed there as "other (business, health, misc.)"."""

SUBCATEGORIES: dict[str, tuple[str, ...]] = {
    "physics": ("astronomy", "college_physics", "conceptual_physics", "high_school_physics"),
    "chemistry": ("college_chemistry", "high_school_chemistry"),
    "biology": ("college_biology", "high_school_biology"),
    "computer science": (
        "college_computer_science",
        "computer_security",
        "high_school_computer_science",
        "machine_learning",
    ),
    "math": (
        "abstract_algebra",
        "college_mathematics",
        "elementary_mathematics",
        "high_school_mathematics",
        "high_school_statistics",
    ),
    "engineering": ("electrical_engineering",),
    "history": ("high_school_european_history", "high_school_us_history", "high_school_world_history", "prehistory"),
    "philosophy": (
        "formal_logic",
        "logical_fallacies",
        "moral_disputes",
        "moral_scenarios",
        "philosophy",
        "world_religions",
    ),
    "law": ("international_law", "jurisprudence", "professional_law"),
    "politics": (
        "high_school_government_and_politics",
        "public_relations",
        "security_studies",
        "us_foreign_policy",
    ),
    "culture": ("human_sexuality", "sociology"),
    "economics": ("econometrics", "high_school_macroeconomics", "high_school_microeconomics"),
    "geography": ("high_school_geography",),
    "psychology": ("high_school_psychology", "professional_psychology"),
    "other": ("global_facts", "miscellaneous", "professional_accounting"),
    "business": ("business_ethics", "management", "marketing"),
    "health": (
        "anatomy",
        "clinical_knowledge",
        "college_medicine",
        "human_aging",
        "medical_genetics",
        "nutrition",
        "professional_medicine",
        "virology",
    ),
}
"""Subcategory to its subjects."""

_SUBCATEGORY = {subject: name for name, subjects in SUBCATEGORIES.items() for subject in subjects}
_CATEGORY = {name: category for category, names in CATEGORIES.items() for name in names}


def subcategory(subject: str) -> str:
    """The subcategory of an MMLU subject; "other" for any other dataset's subject."""
    return _SUBCATEGORY.get(subject, "other")


def category(subject: str) -> str:
    """The category of an MMLU subject; "other" for any other dataset's subject."""
    return _CATEGORY[subcategory(subject)]
