"""What a protocol leaves out of the data is named before the run, in the report and in the explanation."""

from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item, content_fields
from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import holes, unused, unused_by
from choicewise.report.explain import explanation_lines
from choicewise.report.tables import legend
from choicewise.results.explain import explain
from tests.helpers.protocols import mmlu_protocol


def items(*fields: dict[str, str], question: str = "Is {} wet?") -> list[Item]:
    return [
        Item(str(n), question.format(["rain", "sand", "snow"][n % 3]), ("yes", "no"), (0,), "", each)
        for n, each in enumerate(fields)
    ]


@pytest.mark.parametrize(
    ("field", "values", "content"),
    [
        ("passage", ("Rain falls.", "Sand lies.", "Snow falls."), True),
        ("asks_for", ("cause", "effect", "cause"), True),
        ("activity_label", ("Making rain", "Making sand", "Making snow"), True),
        ("label", ("entailment", "neutral", "neutral"), False),
        ("evidence", ('["It falls."]', '["It lies."]', "[]"), True),
        ("passage", ("Rain falls.",), True),
        ("passage", ("Rain falls.", "", ""), True),
        ("concept", ("rain", "Sand ", "snow"), False),
        ("best_answer", ("yes", "no", "yes"), False),
        ("source_id", ("a b", "b c", "c d"), False),
        ("sourceID", ("a b", "b c", "c d"), False),
        ("field", ("morphology", "syntax", "syntax"), False),
        ("key", ("q1", "q2", "q3"), False),
        ("origin", ("a book", "a book", "a book"), False),
        ("human_votes", ("[1, 2]", "[3, 0]", "[0, 3]"), False),
        ("hard", ("true", "false", "true"), False),
        ("pages", ("1", "2.5", "30"), False),
        ("targets", ('{"a": "b c"}', '{"a": "c d"}', '{"a": "d e"}'), False),
        ("empty", ("", " ", ""), False),
    ],
)
def test_content_is_told_from_what_is_said_about_an_item(field: str, values: tuple[str, ...], content: bool) -> None:
    assert content_fields(items(*({field: value} for value in values))) == ((field,) if content else ())


def test_a_blank_counts_where_most_questions_have_one() -> None:
    blank = items({}, {}, question="The {} was _ again.")
    assert content_fields(blank) == ("_",)
    assert content_fields([*blank, *items({}, {})]) == ()
    assert content_fields(items({}, question="The {} has snake_case.")) == ()
    assert content_fields([]) == ()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("boolq.validation.first500", ("passage",)),
        ("social_i_qa.validation", ("context",)),
        ("copa.validation", ("asks_for",)),
        ("winogrande.validation", ("_",)),
        ("hellaswag.validation.first2000", ()),
        ("commonsense_qa.validation", ()),
        ("truthfulqa.en", ()),
        ("piqa.validation", ()),
        ("arc_easy.validation", ()),
    ],
)
def test_content_of_published_data(shared_data: Path, file: str, content: tuple[str, ...]) -> None:
    assert open_dataset(shared_data / "hf_rows" / f"{file}.jsonl").content == content


@pytest.mark.costly("runs are evaluated and compared")
def test_content_of_mmlu_and_blimp(shared_data: Path) -> None:
    assert open_dataset(shared_data / "mmlu").content == ()
    for file in (shared_data / "blimp").glob("*.jsonl"):
        assert open_dataset(file).content == ()


def test_unused() -> None:
    assert holes("{{x}} {question}{options}") == {"question", "options"}
    letters = mmlu_protocol()
    cloze = mmlu_protocol(question="Q: {question}\nA:", continuation=" {choice}", answer=" {choice}")
    passage = mmlu_protocol(question="{passage}\n{question}\n{options}Answer:")
    bare = mmlu_protocol(question="{options}Answer:")
    both = ("_", "passage")
    assert [unused(each, both) for each in (letters, cloze, passage, bare)] == [("passage",), both, (), ()]
    protocols = {"letters": letters, "cloze": cloze, "bare": bare, "again": cloze}
    assert unused_by(protocols, both) == {("passage",): ["letters"], both: ["cloze", "again"]}


def test_a_run_its_report_and_explanation_name_what_is_unused(tmp_path: Path) -> None:
    data = Dataset("wet", {"test": items({"passage": "Rain falls."}, {"passage": "Sand lies."})})
    protocols = {
        name: mmlu_protocol(shots=0, choices=2, question=question, boundary="joint")
        for name, question in {"with": "{passage} {question}\n{options}", "without": "{question}\n{options}"}.items()
    }
    run = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "run")
    assert run.manifest.dataset.content == ("passage",)
    rows = {row.protocol: row for row in run.rows()}
    assert (rows["with"].unused, rows["without"].as_json()["unused"]) == ((), ["passage"])
    assert any(line.startswith("unused: ") for line in legend([rows["without"]]))
    assert not any(line.startswith("unused: ") for line in legend([rows["with"]]))
    explained = "\n".join(explanation_lines(explain(run, "0")))
    assert explained.count("unused: passage") == 1


def test_catalogue_entries_show_what_they_are_given() -> None:
    assert unused_by(resolve("mmlu/original"), ("passage",)) == {("passage",): ["mmlu/original"]}
