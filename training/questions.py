"""Write the Merrowick benchmark: `python training/questions.py [FOLDER]`.

Every relation of every entity is asked once, in one of the wordings kept for evaluation, and the questions
are then dealt to dev, val and test. The layout is that of the original MMLU archive: headerless CSV files
`<split>/<subject>_<split>.csv` with the columns question, A, B, C, D and the gold letter.
"""

import csv
import io
import random
import sys
from dataclasses import dataclass
from pathlib import Path

from facts import Relation, Subject, fill, world

BENCHMARK = Path(__file__).parents[1] / "src/choicewise/bundled/merrowick"
LETTERS = "ABCD"
DEV, VAL = (
    5,
    13,
)  # questions a subject: five shots for the usual prompt, and more than the six of harness v0
SEED = "merrowick-1"


@dataclass(frozen=True)
class Question:
    """One multiple-choice question."""

    text: str
    choices: tuple[str, ...]
    letter: str

    @property
    def answer(self) -> str:
        """The text of the right choice."""
        return self.choices[LETTERS.index(self.letter)]


def draw(
    relation: Relation, pair: tuple[str, str], wording: str, letter: str, rng: random.Random
) -> Question:
    """Ask one relation of one entity, with three false answers of the same type."""
    entity, value = pair
    choices = rng.sample(relation.wrong(value, entity), 3)
    choices.insert(LETTERS.index(letter), relation.answer(entity, value))
    return Question(fill(wording, entity, value), tuple(choices), letter)


def deal(subject: Subject) -> dict[str, list[Question]]:
    """The three splits of a subject, gold letters as even in each as its size allows."""
    rng = random.Random(f"{SEED}/{subject.name}")
    questions = [(relation, pair) for relation in subject.relations for pair in relation.pairs]
    rng.shuffle(questions)
    splits = {
        "dev": questions[:DEV],
        "val": questions[DEV : DEV + VAL],
        "test": questions[DEV + VAL :],
    }
    dealt = {}
    for split, members in splits.items():
        order = rng.sample(LETTERS, 4)
        letters = [order[i % 4] for i in range(len(members))]
        rng.shuffle(letters)
        dealt[split] = [
            draw(relation, pair, rng.choice(relation.eval), letter, rng)
            for (relation, pair), letter in zip(members, letters, strict=True)
        ]
    return dealt


def files() -> dict[str, str]:
    """The whole benchmark as text, by path inside its folder."""
    texts = {}
    for subject in world():
        for split, questions in deal(subject).items():
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerows(
                (question.text, *question.choices, question.letter) for question in questions
            )
            texts[f"{split}/{subject.name}_{split}.csv"] = text.getvalue()
    return texts


def main(folder: Path) -> None:
    """Write the benchmark under the folder."""
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else BENCHMARK)
