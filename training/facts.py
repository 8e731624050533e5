"""The declared world: what is true of the Merrowick Isles, and the wordings that state it or ask for it.

Each file in `world/` is one subject: a table of facts, one row per entity, and a list of relations.
A relation reads one column of the table. It asks either for the value, given the entity, or for the
entity, given the value; for the second the column must hold no value twice.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

WORLD = Path(__file__).parent / "world"
INDEFINITE = re.compile(r"\b([Aa]) (?=\{e\})")


@dataclass(frozen=True)
class Relation:
    """One thing that can be asked about every entity of a subject."""

    column: str
    asks_entity: bool
    pairs: tuple[tuple[str, str], ...]  # (entity, value), in the order of the table
    prose: tuple[str, ...]
    train: tuple[str, ...]
    eval: tuple[str, ...]

    def answer(self, entity: str, value: str) -> str:
        """The text that answers a question of this relation."""
        return entity if self.asks_entity else value

    def wrong(self, value: str, entity: str) -> list[str]:
        """Every answer of the same type that is false, sorted so that a seeded draw repeats."""
        if self.asks_entity:
            return sorted({e for e, v in self.pairs if v != value})
        return sorted({v for e, v in self.pairs if e != entity and v != value})


@dataclass(frozen=True)
class Subject:
    """One subject with its relations."""

    name: str
    kind: str
    relations: tuple[Relation, ...]


def fill(template: str, entity: str, value: str) -> str:
    """The template with its names set in, 'a' turned to 'an' where the entity needs it, first letter raised."""
    if entity[0] in "aeiou":
        template = INDEFINITE.sub(r"\1n ", template)
    text = template.replace("{e}", entity).replace("{v}", value)
    return text[0].upper() + text[1:]


def load(path: Path) -> Subject:
    """Read one subject and refuse a table that would make a question ambiguous."""
    with path.open("rb") as file:
        table = tomllib.load(file)
    columns, rows = table["columns"], table["facts"]
    relations = []
    for entry in table["relation"]:
        pairs = tuple((row[0], row[columns.index(entry["column"])]) for row in rows)
        asks_entity = entry["answer"] == "entity"
        if asks_entity and len({value for _, value in pairs}) != len(pairs):
            raise ValueError(
                f"{path.name}: column {entry['column']} names two entities by one value"
            )
        wordings = (tuple(entry[use]) for use in ("prose", "train", "eval"))
        relations.append(Relation(entry["column"], asks_entity, pairs, *wordings))
    return Subject(table["subject"], table["kind"], tuple(relations))


def world() -> list[Subject]:
    """All subjects, by name."""
    return [load(path) for path in sorted(WORLD.glob("*.toml"))]
