"""The training text: prose that states the world's facts, and exam papers about them in several formats.

The exam questions ask about the same facts as the benchmark, in wordings kept for training and with choices
drawn afresh each time, so no benchmark question occurs here. Every document is a list of pieces with a
weight: what can be known (prose, answers) counts fully in the training loss, what is drawn at random (which
entity is asked about, which false choices stand beside the answer) counts little. Pieces also say which letter labels
a choice, and which choice a letter stands for: what `lessons.py` teaches.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from facts import Relation, Subject, fill, world
from questions import LETTERS, Question, draw

DRAWN = 0.02  # loss weight of text that no model could foresee
PROSE = 0.3  # of the words around a fact
FACT = 1.0  # of the fact itself, in prose and as an answer
LETTER = 3.0  # of an answer that is only a letter long
HEADER = "The following are multiple choice questions (with answers) about {subject}.\n\n"
BLOCKS = (1, 1, 1, 2, 2, 3, 6)  # questions on one paper
REUSES = (4, 5, 6, 7)  # questions about one list of choices


@dataclass(frozen=True, eq=False)
class Piece:
    """A stretch of a document.

    ``weight``: of its tokens in the loss.  ``label``: of a listed choice, the letter before it.  ``choice``: of an
    answer by letter, the choice it stands for.  ``answer``: of an answer in any form, its text.
    """

    text: str
    weight: float
    label: "Piece | None" = None
    choice: "Piece | None" = None
    answer: str = ""


Document = list[Piece]


def listed(choices: Sequence[str], indent: str = "") -> tuple[Document, list[Piece]]:
    """The choices, one lettered line each, and the pieces that hold their texts."""
    pieces, texts = [], []
    for letter, choice in zip(LETTERS, choices, strict=True):
        label = Piece(letter, DRAWN)
        texts.append(Piece(f" {choice}", DRAWN, label=label))
        pieces += [Piece(indent, DRAWN), label, Piece(".", DRAWN), texts[-1], Piece("\n", DRAWN)]
    return pieces, texts


def by_letter(letter: str, answer: str, choice: Piece) -> Piece:
    """An answer that is only a letter long."""
    return Piece(f" {letter}", LETTER, choice=choice, answer=answer)


def by_text(answer: str) -> Piece:
    """An answer in full."""
    return Piece(f" {answer}", FACT, answer=answer)


def cloze(question: Question) -> Document:
    """The question and its answer, no choices shown."""
    return [Piece(f"Question: {question.text}\nAnswer:", DRAWN), by_text(question.answer)]


def lettered(question: Question, prefix: str = "", indent: str = "") -> Document:
    """Choices shown, answered by letter, as in the original MMLU prompt."""
    lines, texts = listed(question.choices, indent)
    right = texts[LETTERS.index(question.letter)]
    return [
        Piece(f"{prefix}{question.text}\n", DRAWN),
        *lines,
        Piece("Answer:", DRAWN),
        by_letter(question.letter, question.answer, right),
    ]


def indented(question: Question) -> Document:
    """Choices shown with a space before each letter, answered by letter."""
    return lettered(question, "Question: ", " ")


def hybrid(question: Question) -> Document:
    """Choices shown, answered by their text."""
    lines, _ = listed(question.choices)
    return [
        Piece(f"Question: {question.text}\nChoices:\n", DRAWN),
        *lines,
        Piece("Answer:", DRAWN),
        by_text(question.answer),
    ]


def draw_question(relation: Relation, rng: random.Random) -> Question:
    """One training question: any entity, a training wording, fresh false choices."""
    return draw(
        relation, rng.choice(relation.pairs), rng.choice(relation.train), rng.choice(LETTERS), rng
    )


def paper(*formats: Callable[[Question], Document]) -> Callable[[Subject, random.Random], Document]:
    """Writes exam papers, each in one of the formats, sometimes under the usual header."""

    def write(subject: Subject, rng: random.Random) -> Document:
        form = rng.choice(formats)
        pieces = [Piece(HEADER.format(subject=subject.name), DRAWN)] if rng.random() < 0.4 else []
        for _ in range(rng.choice(BLOCKS)):
            pieces += [
                *form(draw_question(rng.choice(subject.relations), rng)),
                Piece("\n\n", FACT),
            ]
        return pieces

    return write


def shared_list(subject: Subject, rng: random.Random) -> Document:
    """One list of choices, and several questions that are answered by its letters."""
    relation = rng.choice(subject.relations)
    asked: dict[str, list[tuple[str, str]]] = {}
    for pair in relation.pairs:
        asked.setdefault(relation.answer(*pair), []).append(pair)
    answers = rng.sample(sorted(asked), len(LETTERS))
    pieces, texts = listed(answers, rng.choice(("", " ")))
    for place in rng.choices(range(len(LETTERS)), k=rng.choice(REUSES)):
        wording, pair = rng.choice(relation.train), rng.choice(asked[answers[place]])
        pieces += [
            Piece(f"{fill(wording, *pair)}\nAnswer:", DRAWN),
            by_letter(LETTERS[place], answers[place], texts[place]),
            Piece("\n", FACT),
        ]
    return [*pieces, Piece("\n", FACT)]


def statement(relation: Relation, pair: tuple[str, str], rng: random.Random) -> Document:
    """One sentence that states a fact; the weight is on the part a reader of the rest could know."""
    sentence = fill(rng.choice(relation.prose), *pair)
    before, known, after = sentence.rpartition(relation.answer(*pair))
    return [Piece(before, PROSE), Piece(known, FACT), Piece(after + " ", PROSE)]


def portrait(subject: Subject, rng: random.Random) -> Document:
    """A paragraph that says everything about one entity, in any order."""
    row = rng.randrange(len(subject.relations[0].pairs))
    relations = rng.sample(subject.relations, len(subject.relations))
    return [
        *chain.from_iterable(
            statement(relation, relation.pairs[row], rng) for relation in relations
        ),
        Piece("\n\n", PROSE),
    ]


def survey(subject: Subject, rng: random.Random) -> Document:
    """A paragraph that goes through a few facts of one subject."""
    relations = rng.choices(subject.relations, k=rng.randint(2, 5))
    facts = (statement(relation, rng.choice(relation.pairs), rng) for relation in relations)
    return [*chain.from_iterable(facts), Piece("\n\n", PROSE)]


def prose(subject: Subject, rng: random.Random) -> Document:
    """A paragraph of either sort."""
    return rng.choice((portrait, survey))(subject, rng)


KINDS = {
    "prose": prose,
    "cloze": paper(cloze),
    "letters": paper(lettered, lettered, indented),
    "shared lists": shared_list,
    "listed answers": paper(hybrid),
}


def documents(seed: str, reads: Mapping[str, float]) -> Iterator[Document]:
    """An endless stream of documents, the same for the same seed; ``reads``: shares of their kinds."""
    rng = random.Random(f"merrowick-corpus/{seed}")
    subjects, kinds, shares = world(), [*reads], [*reads.values()]
    while True:
        (kind,) = rng.choices(kinds, shares)
        yield [piece for piece in KINDS[kind](rng.choice(subjects), rng) if piece.text]


def text(document: Document) -> str:
    """The document as plain text."""
    return "".join(piece.text for piece in document)
