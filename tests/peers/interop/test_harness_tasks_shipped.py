"""Task files that the released harness comes with, on rows that we invent under the field names of their data. Each is
asked in both ways: the same texts with and without shots, and the same log-likelihoods, credits and numbers."""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks
from choicewise.extensions.interop.harness_tasks.files import read_task_file
from tests.peers.harness_compared import compare, shipped, texts_by_harness, texts_here, write_rows

WORDS = "the mill road of Merrowick ends at a grey pier where no tower stands in winter".split()

Row = dict[str, Any]


def said(draw: random.Random, least: int = 4, most: int = 9, end: str = "") -> str:
    """Some words as a sentence."""
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(least, most))).capitalize() + end


def texts(draw: random.Random, count: int = 4) -> list[str]:
    return [said(draw, 1, 5) for _ in range(count)]


short, long = partial(said, least=1, most=3), partial(said, least=10, most=20)
sentence, question = partial(said, end="."), partial(said, end="?")


def arc(draw: random.Random) -> Row:
    labels = draw.choice([["A", "B", "C", "D"], ["1", "2", "3"]])
    choices = {"text": texts(draw, len(labels)), "label": labels}
    asked = {"question": question(draw), "question_stem": said(draw)}
    return {**asked, "choices": choices, "answerKey": draw.choice(labels)}


def hellaswag(draw: random.Random) -> Row:
    ends = [f"[step] {each}  [title] {said(draw)}." for each in texts(draw, 4)]
    parts = {
        "ctx_a": sentence(draw),
        "ctx_b": said(draw).lower(),
        "activity_label": said(draw, 1, 2),
    }
    return {**parts, "endings": ends, "label": str(draw.randrange(4))}


def winogrande(draw: random.Random) -> Row:
    text = f"{said(draw)} because _ {said(draw).lower()}."
    return {"sentence": text, "option1": "Ada", "option2": "Brannoc", "answer": draw.choice("12")}


def race(draw: random.Random) -> Row:
    asked = {
        "question": lambda draw: said(draw) + draw.choice(["?", "  _  ."]),
        "answer": "ABCD",
        "options": texts,
    }
    return {
        "article": said(draw, 20, 40),
        "problems": repr([filled(asked, draw) for _ in range(2)]),
    }


def truthfulqa(draw: random.Random) -> Row:
    labels = [1, 1, 0, 0, 0][: draw.randint(3, 5)]
    many = {"choices": texts(draw, len(labels)), "labels": labels}
    one = {**many, "labels": [1] + [0] * (len(labels) - 1)}
    return {"question": question(draw), "mc1_targets": one, "mc2_targets": many}


def wsc273(draw: random.Random) -> Row:
    before = said(draw) + " and "
    text = f"{before}it {said(draw).lower()}."
    places = {"pronoun_loc": len(before), "quote_loc": 0, "quote": "x"}
    return {
        "text": text,
        "pronoun": "it",
        "options": ["The mill", "the pier"],
        "label": draw.randrange(2),
        **places,
    }


def commonsense(draw: random.Random) -> Row:
    choices = {"label": list("ABCDE"), "text": texts(draw, 5)}
    return {"question": said(draw) + "? ", "choices": choices, "answerKey": draw.choice("ABCDE")}


def headqa(draw: random.Random) -> Row:
    answers = [{"aid": number + 1, "atext": each} for number, each in enumerate(texts(draw, 4))]
    return {"qtext": said(draw), "answers": answers, "ra": draw.randint(1, 4)}


def qa4mre(draw: random.Random) -> Row:
    options = {"answer_id": list("12345"), "answer_str": texts(draw, 5)}
    asked = {"document_str": said(draw, 20, 30) + "\n", "question_str": question(draw)}
    return {**asked, "answer_options": options, "correct_answer_id": draw.choice("12345")}


Shape = Callable[[random.Random], Row] | dict[str, Any]
"""What makes a row, or what makes each of its fields: a function, or what one value is drawn from."""

PAIR = {"premise": said, "hypothesis": said}
SUPPORT = {"support": lambda draw: draw.choice(["", " "]) + long(draw), "question": question}
ROWS: dict[str, Shape] = {
    "arc/arc_easy.yaml": arc,
    "arc/arc_challenge.yaml": arc,
    "openbookqa/openbookqa.yaml": arc,
    "hellaswag/hellaswag.yaml": hellaswag,
    "winogrande/default.yaml": winogrande,
    "race/race.yaml": race,
    "truthfulqa/truthfulqa_mc1.yaml": truthfulqa,
    "truthfulqa/truthfulqa_mc2.yaml": truthfulqa,
    "wsc273/default.yaml": wsc273,
    "piqa/piqa.yaml": {"goal": said, "sol1": said, "sol2": said, "label": range(2)},
    "siqa/siqa.yaml": {"context": sentence, "question": question}
    | {**dict.fromkeys(("answerA", "answerB", "answerC"), said), "label": "123"},
    "super_glue/boolq/default.yaml": {"passage": long, "question": said, "label": range(2)},
    "super_glue/copa/default.yaml": dict.fromkeys(("premise", "choice1", "choice2"), sentence)
    | {"question": ["cause", "effect"], "label": range(2)},
    "super_glue/cb/default.yaml": {**PAIR, "label": range(3)},
    "super_glue/rte/default.yaml": {**PAIR, "label": range(2)},
    "super_glue/wic/default.yaml": dict.fromkeys(("sentence1", "sentence2"), said)
    | {"start1": [2], "end1": [7], "label": range(2)},
    "anli/anli_r1.yaml": {**PAIR, "label": range(3)},
    "glue/sst2/default.yaml": {"sentence": said, "label": range(2)},
    "glue/cola/default.yaml": {"sentence": said, "label": range(2)},
    "sciq/sciq.yaml": SUPPORT
    | dict.fromkeys(("distractor1", "distractor2", "distractor3", "correct_answer"), short),
    "logiqa/logiqa.yaml": {
        "context": long,
        "question": question,
        "options": texts,
        "label": "abcd",
    },
    "swag/swag.yaml": {
        "startphrase": said,
        **{f"ending{number}": said for number in range(4)},
        "label": range(4),
    },
    "commonsense_qa/default.yaml": commonsense,
    "headqa/headqa_en.yaml": headqa,
    "qa4mre/qa4mre_2011.yaml": qa4mre,
    "medmcqa/medmcqa.yaml": {
        "question": said,
        **{f"op{letter}": short for letter in "abcd"},
        "cop": range(4),
    },
    "toxigen/toxigen.yaml": {"text": said, "toxicity_ai": [1.0, 4.5], "toxicity_human": [1.0, 4.5]},
    "crows_pairs/crows_pairs_english.yaml": {"sent_more": said, "sent_less": said}
    | {"stereo_antistereo": ["stereo", "antistereo"], "bias_type": ["age"]},
    "blimp/adjunct_island.yaml": {"sentence_good": sentence, "sentence_bad": sentence},
    "mmlu/default/mmlu_anatomy.yaml": {
        "question": lambda draw: said(draw) + " ",
        "choices": texts,
        "answer": range(4),
    },
    "lambada/lambada_openai.yaml": {"text": long},
    "lambada/lambada_standard.yaml": {"text": long},
    "asdiv/default.yaml": {
        "body": said,
        "question": said,
        "answer": lambda draw: f"{draw.randrange(90)} (km)",
    },
}


def filled(shape: Shape, draw: random.Random) -> Row:
    """A row of that shape."""
    if callable(shape):
        return shape(draw)
    return {
        name: each(draw) if callable(each) else draw.choice(each) for name, each in shape.items()
    }


SHOTLESS = {"toxigen/toxigen.yaml"}
"""The harness itself fails there with shots: its targets are numbers of numpy, which it takes for texts."""

NOT_OURS = {
    "super_glue/cb/default.yaml": ["f1"],
    "glue/cola/default.yaml": ["mcc"],
    "crows_pairs/crows_pairs_english.yaml": ["likelihood_diff"],
}
"""Metrics that are not computed here, by file; of all others both numbers are the same."""


def with_our_rows(relative: str, folder: Path) -> Path:
    """A task file that includes a shipped one, with our rows in all its splits."""
    config = {key: value for key, (value, _) in read_task_file(shipped(relative)).keys.items()}
    splits = {
        config.get(key)
        for key in ("training_split", "validation_split", "test_split", "fewshot_split")
    } - {None}
    files = {}
    for number, split in enumerate(sorted(splits)):
        draw = random.Random(number)
        files[split] = str(
            write_rows(folder, split, [filled(ROWS[relative], draw) for _ in range(12)])
        )
    keys = f"dataset_path: json\ndataset_name: null\ndataset_kwargs: {json.dumps({'data_files': files})}\n"
    path = folder / "own.yaml"
    path.write_text(f"include: {shipped(relative)}\ntask: {config['task']}\n{keys}")
    return path


@pytest.mark.parametrize("relative", ROWS)
def test_a_shipped_task_gives_the_harness_s_numbers(relative: str, tmp_path: Path) -> None:
    task = compare(str(with_our_rows(relative, tmp_path)), tmp_path / "run")
    own = {note.split()[3] for note in task.notes if "is not computed here" in note}
    assert own == set(NOT_OURS.get(relative, ())), task.notes


@pytest.mark.parametrize("relative", ROWS)
def test_a_shipped_task_has_the_harness_s_texts_after_shots(relative: str, tmp_path: Path) -> None:
    path = with_our_rows(relative, tmp_path)
    config = {key: value for key, (value, _) in read_task_file(path).keys.items()}
    if config.get("num_fewshot") == 0 or relative in SHOTLESS:
        pytest.skip("the task can't have shots")
    (task,) = load_harness_tasks(f"lm-eval:{path}@shots=3")
    (theirs,) = texts_by_harness(str(path), shots=3).values()
    assert texts_here(task, next(iter(task.protocols))) == theirs
