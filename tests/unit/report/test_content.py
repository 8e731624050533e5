"""A dataset in words: what to look at before a run, and what of it a protocol leaves out."""

from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item, content_fields
from choicewise.data.open import open_dataset
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import holes
from choicewise.report.tables import legend
from choicewise.requests.blocks import unused, unused_by
from choicewise.results.explain import explain
from tests.helpers.protocols import mmlu_protocol


def items(*fields: dict[str, str], question: str = "Is {} wet?") -> list[Item]:
    return [
        Item(
            str(n), question.format(["rain", "sand", "snow"][n % 3]), ("yes", "no"), (0,), "", each
        )
        for n, each in enumerate(fields)
    ]


CONTENT = [
    ("passage", ("Rain falls.", "Sand lies.", "Snow falls.")),
    ("asks_for", ("cause", "effect", "cause")),
    ("activity_label", ("Making rain", "Making sand", "Making snow")),
    ("evidence", ('["It falls."]', '["It lies."]', "[]")),
    *[("passage", ("Rain falls.",)), ("passage", ("Rain falls.", "", ""))],
]
ABOUT = [
    *[("label", ("entailment", "neutral", "neutral")), ("concept", ("rain", "Sand ", "snow"))],
    *[
        ("best_answer", ("yes", "no", "yes")),
        ("source_id", ("a b", "b c", "c d")),
        ("sourceID", ("a b", "b c", "c d")),
    ],
    *[
        ("field", ("morphology", "syntax", "syntax")),
        ("key", ("q1", "q2", "q3")),
        ("origin", ("a book",) * 3),
    ],
    *[("human_votes", ("[1, 2]", "[3, 0]", "[0, 3]")), ("hard", ("true", "false", "true"))],
    *[("pages", ("1", "2.5", "30")), ("targets", ('{"a": "b c"}', '{"a": "c d"}', '{"a": "d e"}'))],
    ("empty", ("", " ", "")),
]


@pytest.mark.parametrize(("field", "values"), CONTENT + ABOUT)
def test_content_is_told_from_what_is_said_about_an_item(
    field: str, values: tuple[str, ...]
) -> None:
    expected = (field,) if (field, values) in CONTENT else ()
    assert content_fields(items(*({field: value} for value in values))) == expected


def test_a_blank_counts_where_most_questions_have_one() -> None:
    blank = items({}, {}, question="The {} was _ again.")
    assert content_fields(blank) == ("_",)
    assert content_fields([*blank, *items({}, {})]) == ()
    assert content_fields(items({}, question="The {} has snake_case.")) == ()
    assert content_fields([]) == ()


PUBLISHED = {
    **{
        "boolq.validation.first500": "passage",
        "social_i_qa.validation": "context",
        "copa.validation": "asks_for",
    },
    **{
        "winogrande.validation": "_",
        "hellaswag.validation.first2000": "",
        "commonsense_qa.validation": "",
    },
    **{"truthfulqa.en": "", "piqa.validation": "", "arc_easy.validation": ""},
}


@pytest.mark.parametrize("file", PUBLISHED)
def test_content_of_published_data(shared_data: Path, file: str) -> None:
    content = open_dataset(shared_data / "hf_rows" / f"{file}.jsonl").content
    assert content == ((PUBLISHED[file],) if PUBLISHED[file] else ())


@pytest.mark.costly("all of MMLU is read")
def test_content_of_mmlu_and_blimp(shared_data: Path) -> None:
    for data in (shared_data / "mmlu", *(shared_data / "blimp").glob("*.jsonl")):
        assert open_dataset(data).content == ()


def test_what_protocols_do_not_use() -> None:
    assert holes("{{x}} {question}{options}") == {"question", "options"}
    letters = mmlu_protocol()
    cloze = mmlu_protocol(
        question="Q: {question}\nA:", continuation=" {choice}", answer=" {choice}"
    )
    passage = mmlu_protocol(question="{passage}\n{question}\n{options}Answer:")
    bare = mmlu_protocol(question="{options}Answer:")
    both = ("_", "passage")
    assert [unused(each, both) for each in (letters, cloze, passage, bare)] == [
        ("passage",),
        both,
        (),
        (),
    ]
    protocols = {"letters": letters, "cloze": cloze, "bare": bare, "again": cloze}
    assert unused_by(protocols, both) == {("passage",): ["letters"], both: ["cloze", "again"]}
    assert unused_by(resolve("mmlu/original"), ("passage",)) == {("passage",): ["mmlu/original"]}


def test_a_run_its_report_and_explanation_name_what_is_unused(tmp_path: Path) -> None:
    data = Dataset("wet", {"test": items({"passage": "Rain falls."}, {"passage": "Sand lies."})})
    questions = {"with": "{passage} {question}\n{options}", "without": "{question}\n{options}"}
    axes: dict[str, Any] = {"shots": 0, "choices": 2, "boundary": "joint"}
    protocols = {
        name: mmlu_protocol(question=question, **axes) for name, question in questions.items()
    }
    run = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")
    assert run.manifest.dataset.content == ("passage",)
    rows = {row.identity.protocol: row for row in run.rows()}
    assert (rows["with"].unused, rows["without"].as_json()["unused"]) == ((), ["passage"])
    for name, row in rows.items():
        assert any(line.startswith("unused: ") for line in legend([row])) == (name == "without")
    assert "\n".join(explanation_lines(explain(run, "0"))).count("unused: passage") == 1
