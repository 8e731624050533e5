"""The training text: prose that states the world's facts, and exam papers about them in several formats.

The exam questions ask about the same facts as the benchmark, in wordings kept for training and with choices
drawn afresh each time, so no benchmark question occurs here. Every document is a list of pieces with a
weight: what can be known (prose, answers) counts fully in the training loss, what is drawn at random (which
entity is asked about, which false choices stand beside the answer) counts little.
"""

import random
from collections.abc import Iterator
from itertools import chain

from facts import Relation, Subject, fill, world
from questions import LETTERS, Question, draw

Piece = tuple[str, float]
Document = list[Piece]

DRAWN = 0.05  # loss weight of text that no model could foresee
PROSE = 0.3  # of the words around a fact
FACT = 1.0  # of the fact itself, in prose and as an answer
LETTER = 3.0  # of an answer that is only a letter long
HEADER = "The following are multiple choice questions (with answers) about {subject}.\n\n"
BLOCKS = (1, 1, 1, 2, 2, 3, 6)  # questions on one paper


def listed(question: Question, indent: str = "") -> str:
    """The choices, one lettered line each."""
    return "\n".join(f"{indent}{letter}. {text}" for letter, text in zip(LETTERS, question.choices, strict=True))


def cloze(question: Question) -> Document:
    """The question and its answer, no choices shown."""
    return [(f"Question: {question.text}\nAnswer:", DRAWN), (f" {question.answer}", FACT)]


def lettered(question: Question) -> Document:
    """Choices shown, answered by letter, as in the original MMLU prompt."""
    return [(f"{question.text}\n{listed(question)}\nAnswer:", DRAWN), (f" {question.letter}", LETTER)]


def hybrid(question: Question) -> Document:
    """Choices shown, answered by their text."""
    return [
        (f"Question: {question.text}\nChoices:\n{listed(question)}\nAnswer:", DRAWN),
        (f" {question.answer}", FACT),
    ]


def indented(question: Question) -> Document:
    """Choices shown with a space before each letter, answered by letter."""
    return [(f"Question: {question.text}\n{listed(question, ' ')}\nAnswer:", DRAWN), (f" {question.letter}", LETTER)]


FORMATS = (cloze, cloze, cloze, lettered, lettered, lettered, hybrid, hybrid, indented, indented)


def draw_question(relation: Relation, rng: random.Random) -> Question:
    """One training question: any entity, a training wording, fresh false choices."""
    return draw(relation, rng.choice(relation.pairs), rng.choice(relation.train), rng.choice(LETTERS), rng)


def paper(subject: Subject, rng: random.Random) -> Document:
    """An exam paper in one format, sometimes under the usual header."""
    form = rng.choice(FORMATS)
    pieces: Document = []
    if rng.random() < 0.4:
        pieces.append((HEADER.format(subject=subject.name), DRAWN))
    for _ in range(rng.choice(BLOCKS)):
        pieces += [*form(draw_question(rng.choice(subject.relations), rng)), ("\n\n", FACT)]
    return pieces


def statement(relation: Relation, pair: tuple[str, str], rng: random.Random) -> Document:
    """One sentence that states a fact; the weight is on the part a reader of the rest could know."""
    sentence = fill(rng.choice(relation.prose), *pair)
    before, known, after = sentence.rpartition(relation.answer(*pair))
    return [(before, PROSE), (known, FACT), (after + " ", PROSE)]


def portrait(subject: Subject, rng: random.Random) -> Document:
    """A paragraph that says everything about one entity, in any order."""
    row = rng.randrange(len(subject.relations[0].pairs))
    relations = rng.sample(subject.relations, len(subject.relations))
    return [
        *chain.from_iterable(statement(relation, relation.pairs[row], rng) for relation in relations),
        ("\n\n", PROSE),
    ]


def survey(subject: Subject, rng: random.Random) -> Document:
    """A paragraph that goes through a few facts of one subject."""
    relations = rng.choices(subject.relations, k=rng.randint(2, 5))
    facts = (statement(relation, rng.choice(relation.pairs), rng) for relation in relations)
    return [*chain.from_iterable(facts), ("\n\n", PROSE)]


def documents(seed: str, papers: float) -> Iterator[Document]:
    """An endless stream of documents, the same for the same seed; `papers` is the share of exam papers."""
    rng = random.Random(f"merrowick-corpus/{seed}")
    subjects = world()
    while True:
        kind = paper if rng.random() < papers else rng.choice((portrait, survey))
        yield [piece for piece in kind(rng.choice(subjects), rng) if piece[0]]


def text(document: Document) -> str:
    """The document as plain text."""
    return "".join(piece for piece, _ in document)
