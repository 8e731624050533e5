"""Mappings of columns: declared in Python and in TOML, of benchmarks, and proposed for unknown columns."""

import csv
import json
import tomllib
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Columns, Dataset, columns_of, mapping_table, read_mapping
from choicewise.data.files import RowPlace
from choicewise.data.guess import proposal
from choicewise.data.open import open_dataset
from choicewise.data.tables import read_tabular
from choicewise.errors import DataError, ProtocolError, UnfitRow, UnknownShape
from choicewise.protocols.protocol import Protocol, stop_texts
from tests.helpers.imported_runs import write_lines as write
from tests.helpers.messages import Gist


def mapping(folder: Path, text: str) -> Path:
    path = folder / "mapping.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_read_mapping(tmp_path: Path) -> None:
    text = 'question = "ask"\nchoices = ["a", "b"]\nanswer = "key"\nanswer_is = "label"\nlabels = ["x", "y"]\n'
    path = mapping(tmp_path, f'{text}id = "n"\nsubject = "area"\n[rename]\nquestion = "relation"\n')
    names = {"answer": "key", "id": "n", "subject": "area", "rename": {"question": "relation"}}
    assert read_mapping(path) == Columns(
        "ask", ("a", "b"), answer_is="label", labels=("x", "y"), **names
    )
    assert read_mapping(path).used == {"ask", "a", "b", "key", "n", "area"}
    pair = mapping(
        tmp_path, 'question = ""\nright = "good"\nwrong = ["bad", "worse"]\ndrop_empty = true\n'
    )
    assert read_mapping(pair) == Columns(
        None, right="good", wrong=("bad", "worse"), drop_empty=True
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('choice = "c"\nanswer = "a"', "'choice' .*did you mean choices"),
        ('zzz = "c"', "available: question, choices"),
        ('choices = 1\nanswer = "a"', "choices is 1; .* list of texts"),
        ('choices = []\nanswer = "a"', "choices is ..; it must be"),
        ('choices = "c"\nanswer = 3', "answer is 3; .* a text"),
        ('fixed = "yes"\nanswer = "a"', "fixed is 'yes'; .* list of texts"),
        (
            'choices = "c"\nanswer = "a"\ndrop_empty = 1',
            "drop_empty is 1; .* true or false",
        ),
        ('choices = "c"\nanswer = "a"\nrename = "b"', "rename is 'b'; .* a table"),
        (
            'choices = "c"\nanswer = "a"\nanswer_is = "letter"',
            "answer_is is 'letter'.*label, index",
        ),
        ('choices = "c"\nanswer = "a"\nlabels = ["x", "x"]', "must differ"),
        ('choices = "c"', "needs answer"),
        ('answer = "a"', "choices in one way"),
        ('choices = "c"\nfixed = ["y", "n"]\nanswer = "a"', "choices in one way"),
        ('right = "c"', "wrong, or neither"),
        ('right = "c"\nwrong = "d"\nanswer = "a"', "needs answer, unless"),
        ("choices = ", "mapping.* as TOML"),
        (f"choices = {'[' * 5000}", "nested too deeply"),
        (f"rename = {'{a = ' * 5000}", "nested too deeply"),
        (f"[rename.{'a.' * 5000}a]", "nested too deeply"),
    ],
)
def test_read_mapping_refuses(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint) as raised:
        read_mapping(mapping(tmp_path, text))
    assert "mapping.toml" in str(raised.value)


def test_all_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    text = 'qestion = "q"\nchoices = 1\nanswer = "a"\nanswer_is = "letter"\nlabels = ["x", "x"]\nid = 3\n'
    with pytest.raises(DataError) as raised:
        read_mapping(mapping(tmp_path, text))
    *problems, known = (
        str(raised.value).removeprefix(f"{tmp_path / 'mapping.toml'}: ").split("\n  ")
    )
    assert problems == [
        Gist("'qestion' ... question?"),
        Gist("choices is 1; ... list of texts"),
        Gist("id is 3; ... a text"),
        Gist("answer_is is 'letter'; ... any, label, index, number, text, flags"),
        Gist("label twice"),
    ]
    assert known == Gist(
        "keys of a mapping ... question, choices, fixed, fixed_of, right, wrong, target,"
    )
    with pytest.raises(DataError, match="choices in one way.*\n.*needs answer"):
        read_mapping(mapping(tmp_path, 'question = "q"'))
    with pytest.raises(DataError, match="none.toml as TOML"):
        read_mapping(tmp_path / "none.toml")


def read_rows(
    tmp_path: Path, rows: list[dict[str, Any]], columns: Columns | None = None, subject: str = ""
) -> Dataset:
    file = write(tmp_path / "test.jsonl", rows)
    return read_tabular(
        "made", {"test": [file]}, columns=columns, subjects={file: subject} if subject else None
    )


def test_the_last_word_is_the_only_choice(tmp_path: Path) -> None:
    columns = benchmark("lambada").columns
    items = read_rows(tmp_path, [{"text": "She  lit the\nlamp"}, {"text": "Lamp"}], columns).splits[
        "test"
    ]
    found = [(item.question, item.choices, item.gold) for item in items]
    assert found == [("She  lit", ("the\nlamp",), (0,)), ("", ("Lamp",), (0,))]
    with pytest.raises(DataError, match="can't be scored"):
        read_rows(tmp_path, [{"text": "It ends in a space "}], columns)


def test_one_choice_needs_a_mapping_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="1 choice; .* at least 2"):
        read_rows(tmp_path, [{"question": "Q", "choices": ["a"], "answer": 0}])
    with pytest.raises(DataError, match="right and wrong, or"):
        columns_of({"target": "a", "choices": "b"}, "made")


def test_choices_of_a_subject(tmp_path: Path) -> None:
    columns = columns_of(
        {"answer": "target", "answer_is": "text", "fixed_of": {"law": ["Yes", "No"]}}, "made"
    )
    data = read_rows(tmp_path, [{"question": "Q", "target": "No"}], columns, "law")
    assert [(item.choices, item.gold) for item in data.splits["test"]] == [(("Yes", "No"), (1,))]
    with pytest.raises(DataError, match="for subject 'lore'"):
        read_rows(tmp_path, [{"question": "Q", "target": "No"}], columns, "lore")


def test_a_drawn_order_is_that_of_random_row_after_row(tmp_path: Path) -> None:
    rows = [
        {"question": f"Q{n}", "choices": [f"{n}{letter}" for letter in "abcd"], "answer": n % 4}
        for n in range(9)
    ]
    plain = read_rows(tmp_path, rows).splits["test"]
    drawn = read_rows(
        tmp_path, rows, Columns(choices="choices", answer="answer", shuffled=5)
    ).splits["test"]
    random = Random(5)
    for one, other in zip(plain, drawn, strict=True):
        choices = list(one.choices)
        random.shuffle(choices)
        assert (list(other.choices), other.choices[other.gold[0]]) == (
            choices,
            one.choices[one.gold[0]],
        )


def test_other_columns_can_be_left_out(tmp_path: Path) -> None:
    row = {
        "question": "Q",
        "choices": ["a", "b"],
        "answer": 0,
        "explanation": "long",
        "topic": "law",
    }
    columns = Columns(choices="choices", answer="answer", others=False, rename={"topic": "topic"})
    assert [dict(item.fields) for item in read_rows(tmp_path, [row], columns).splits["test"]] == [
        {"topic": "law"}
    ]


MC1 = {
    "best answer 'x'": {"choices": ["x", "c"], "labels": [1, 0]},
    "have different wrong choices": {"choices": ["b", "d"], "labels": [1, 0]},
    "2 right choices": {"choices": ["b", "a", "c"], "labels": [1, 1, 0]},
}


def test_rows_in_which_mc1_asks_otherwise_are_refused(tmp_path: Path) -> None:
    row = {"question": "Q", "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 1, 0]}}
    for own in (
        {"choices": ["b", "c"], "labels": [1, 0]},
        {"choices": ["b", "c", "a"], "labels": [1, 0, 0]},
    ):
        (item,) = read_rows(tmp_path, [row | {"mc1_targets": own}]).splits["test"]
        assert (item.choices, item.gold) == (("b", "a", "c"), (0, 1))
    for reason, own in MC1.items():
        with pytest.raises(DataError, match=reason):
            read_rows(tmp_path, [row | {"mc1_targets": own}])


@pytest.mark.parametrize(
    ("labels", "best", "after_wrong"),
    [([1, 1, 0, 1], "d", True), ([0, 1, 1, 1], "b", True), ([1, 1, 0, 1], "b", False)],
)
def test_the_best_answer_after_a_wrong_one_is_marked(
    labels: list[int], best: str, after_wrong: bool, tmp_path: Path
) -> None:
    own = {
        "choices": [best, *(text for text, label in zip("abcd", labels, strict=True) if not label)]
    }
    row = {"question": "Q", "mc2_targets": {"choices": ["a", "b", "c", "d"], "labels": labels}}
    row |= {"mc1_targets": own | {"labels": [1, 0]}}
    (item,) = read_rows(tmp_path, [row]).splits["test"]
    assert item.choices[0] == best
    assert ("best_after_wrong" in item.fields) == after_wrong


def test_stops_are_one_a_line_unless_they_begin_with_a_line_break() -> None:
    assert (stop_texts(None), stop_texts(":\nQuestion")) == ((), (":", "Question"))
    assert stop_texts("\n\nQ:") == ("\n\nQ:",)
    axes = {"reading": "generate", "new_tokens": 4, "score": "none", "decision": "letter-match"}
    for stop in ("", "a\n\nb", "a\n"):
        with pytest.raises(ProtocolError, match="no empty line"):
            Protocol(benchmark="any", stop=stop, **axes)


Row = dict[str, Any]
OPTIONS = {"opa": "x", "opb": "y", "opc": "z"}
TWO = {"query": "Q", "option_1": "x", "option_2": "y"}
KEYED, LABELLED = {"A": "x", "B": "y"}, [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]
GUESSED = {
    "question = prompt, choices = candidates, answer = gold (index from 0)": (
        [{"prompt": "Q1", "candidates": ["x", "y"], "gold": gold} for gold in (1, 0)],
        [1, 0],
    ),
    "question = query, choices = opa..c, answer = cop (index from 0), id = id": (
        [{"id": str(n), "query": "Q", **OPTIONS, "cop": n % 3, "exp": "why"} for n in range(6)],
        [0, 1, 2, 0, 1, 2],
    ),
    "question = query, choices = option_1..3, answer = correct_option (number from 1)": (
        [{**TWO, "option_3": "z", "correct_option": str(n)} for n in (3, 1)],
        [2, 0],
    ),
    "question = query, choices = option_1, option_2, answer = correct_option (label)": (
        [{**TWO, "correct_option": "option_2"}],
        [1],
    ),
    "question = question, choices = options.a, options.b, answer = correct (label)": (
        [{"ask": "Q", "options": {"a": "x", "b": "y"}, "correct": "b", "question": "who"}] * 2,
        [1, 1],
    ),
    "question = stem, right = correct_answer, wrong = wrong_answer_1, wrong_answer_2": (
        [{"stem": "Q", "correct_answer": "r", "wrong_answer_1": "x", "wrong_answer_2": "y"}],
        [0],
    ),
    "right = good, wrong = bad": ([{"good": "x", "bad": "y"}], [0]),
    "question = Question, choices = options.A, options.B, answer = answer_idx (label)": (
        [{"Question": "Q", "options": KEYED, "answer_idx": "B"}],
        [1],
    ),
    "question = query, choices = choices, answer = solution (text)": (
        [{"query": "Q", "choices": ["x", "y"], "solution": "y"}],
        [1],
    ),
    "question = query, choices = choices, answer = gold (label)": (
        [{"query": "Q", "choices": ["x", "y"], "gold": "(B)"}],
        [1],
    ),
    "question = query, choices = alternatives, answer = key (label)": (
        [{"query": "Q", "alternatives": "['x', 'y']", "key": "B"}],
        [1],
    ),
    "question = query, choices = choices, answer = label (flags)": (
        [{"query": "Q", "choices": ["x", "y", "z"], "label": [0, 1, 0]}],
        [1],
    ),
    "question = text, fixed = yes, no, answer = label (label)": (
        [{"statement": "P", "text": "Q", "label": cell} for cell in (True, False)],
        [0, 1],
    ),
    "question = text, fixed = yes, no, answer = truth (label)": (
        [{"text": "Q", "truth": cell} for cell in ("yes", "no")],
        [0, 1],
    ),
    "question = instruction, choices = choices, answer = target (label)": (
        [{"instruction": "Q", "choices": LABELLED, "target": "2"}],
        [1],
    ),
}
"""What columns of no known shape are guessed to mean → rows, and their right choices."""

OPEN = [
    [{"query": "Q", "choices": ["x", "y"], "label": cell} for cell in cells]
    for cells in ((True, False), ("yes", "no"))
]


def under(path: Path, lines: list[str]) -> list[int]:
    """The right choices of the questions of ``path`` under the mapping of ``lines``."""
    columns = columns_of(tomllib.loads("\n".join(lines)), "proposed")
    return [item.gold[0] for item in open_dataset(path, columns=columns).splits["test"]]


@pytest.mark.parametrize("guess", GUESSED)
def test_rows_that_one_guess_fits_open_by_it_and_by_the_proposal(
    tmp_path: Path, guess: str
) -> None:
    rows, right = GUESSED[guess]
    path = write(tmp_path / "quiz.jsonl", rows)
    data = open_dataset(path)
    assert (data.guess, [item.gold[0] for item in data.splits["test"]]) == (
        f"quiz.jsonl: {guess}",
        right,
    )
    assert under(path, proposal(rows)) == right


@pytest.mark.parametrize("rows", OPEN, ids=["true and false", "yes and no"])
def test_a_proposal_opens_the_rows_whose_order_of_choices_is_open(
    tmp_path: Path, rows: list[Row]
) -> None:
    path = write(tmp_path / "quiz.jsonl", rows)
    with pytest.raises(UnknownShape, match="can't tell which columns") as refused:
        open_dataset(path)
    (comment,) = [line for line in refused.value.problems if "in the order of" in line]
    no, yes = comment.replace(",", "").split()[4:7:2]
    lines = [*refused.value.problems]
    with pytest.raises(DataError, match=r"has \.\.\. for labels"):
        under(path, lines)
    lines[lines.index('labels = ["...", "..."]')] = f'labels = ["{no}", "{yes}"]'
    assert under(path, lines) == [1, 0]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["(B)", "(A)"], "label"),
        (["b", "a"], "label"),
        ([[0, 1], [1, 0]], "flags"),
        ([True, False], ""),
    ],
)
def test_answers_of_another_kind_in_columns_of_a_known_shape(
    tmp_path: Path, answers: list[Any], kind: str
) -> None:
    """They are read as the one guess says that fits; what true and false say of two choices is asked about."""
    rows = [{"question": "Q", "choices": ["x", "y"], "answer": answer} for answer in answers]
    path, message = (
        write(tmp_path / "quiz.jsonl", rows),
        "looks like question, choices, answer .*no row can be",
    )
    for on_bad_item in ("error", "skip"):
        if kind:
            data = open_dataset(path, on_bad_item=on_bad_item)
            assert (
                data.guess
                == f"quiz.jsonl: question = question, choices = choices, answer = answer ({kind})"
            )
            assert [item.gold for item in data.splits["test"]] == [(1,), (0,)]
        else:
            with pytest.raises(UnknownShape, match=f"{message} read") as refused:
                open_dataset(path, on_bad_item=on_bad_item)
            assert 'labels = ["...", "..."]' in refused.value.problems


def test_no_mapping_is_proposed_where_only_answers_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "quiz.jsonl", [{"question": "Q", "choices": ["x", "y"], "answer": -1}])
    with pytest.raises(DataError, match="split test has no") as refused:
        open_dataset(path)
    assert not isinstance(refused.value, UnknownShape)


def quiz(path: Path, answers: list[Any], **more: Any) -> Path:
    options = {"A": "w", "B": "x", "C": "y", "D": "z"}
    return write(
        path,
        [
            {"question": f"Q{n}", **options, "answer": each, **more}
            for n, each in enumerate(answers)
        ],
    )


@pytest.mark.parametrize("spelled", [int, str])
def test_answers_that_may_count_from_1_are_asked_about(tmp_path: Path, spelled: type) -> None:
    counted = [1 + n % 3 for n in range(30)]
    path = quiz(tmp_path / "quiz.jsonl", [*map(spelled, counted)])
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnknownShape, match="none of 30 answers is 0") as refused:
            open_dataset(path, on_bad_item=on_bad_item)
    lines = "\n".join(refused.value.problems)
    with pytest.raises(DataError, match=r"has \.\.\. for answer_is; fill it in"):
        columns_of(tomllib.loads(lines), "proposed")
    for kind, start in (("number", 1), ("index", 0)):
        columns = columns_of(tomllib.loads(lines.replace('"..."', f'"{kind}"')), "proposed")
        items = open_dataset(path, columns=columns).splits["test"]
        assert [item.gold for item in items] == [(answer - start,) for answer in counted]


def test_the_question_is_asked_about_all_files_together(tmp_path: Path) -> None:
    """Two rows a subject leave it open as well, and the proposal of the first file says so."""
    for subject in ("anatomy", "geology", "physics", "zoology"):
        quiz(tmp_path / subject / "test.jsonl", [1, 2], subject=subject)
    with pytest.raises(UnknownShape, match="none of 8 answers is 0") as refused:
        open_dataset(tmp_path)
    assert 'answer_is = "..."' in refused.value.problems
    quiz(tmp_path / "zoology" / "test.jsonl", [1, 0], subject="zoology")
    assert open_dataset(tmp_path).splits["test"][0].gold == (1,)


def test_what_stays_open_is_said() -> None:
    counted = proposal([{"query": "Q", "options": ["x", "y", "z"], "gold": n} for n in (1, 2, 1)])
    assert (
        '# no answer is 0: replace ... by "number" if they count from 1, by "index" if from 0'
        in counted
    )
    assert 'answer_is = "..."' in counted
    letters = proposal([{"query": "Q", "options": ["B", "A"], "gold": letter} for letter in "AB"])
    assert Gist("# answers can be read ... label or text") in letters
    assert 'answer_is = "..."' in letters
    groups = {"A": "x", "B": "y", "option_1": "v", "option_2": "w"}
    two = proposal([{"query": "Q", **groups, "gold": letter} for letter in "AB"])
    assert Gist("# A, B or option_1, option_2 can be the choices") in two
    assert 'choices = "..."' in two
    twice = proposal(
        [{"query": "Q", "options": ["x", "y"], "gold": "A", "key": key} for key in "AB"]
    )
    assert Gist("# gold or key ... the answer") in twice
    assert 'answer = "..."' in twice
    from_1 = proposal(
        [{"query": "Q", "options": ["x", "y", "z"], "gold": n % 3 + 1} for n in range(8)]
    )
    assert 'answer_is = "number"' in from_1
    partly = proposal(
        [{"query": "Q", "options": ["x", "y"], "gold": cell} for cell in ("A", "", "B")]
    )
    assert partly[0] == Gist("# fits 3 ... first 3 rows")
    assert Gist("# 1 of them") in partly
    same = proposal([{"query": "Q", "options": ["x", "y"], "gold": 2}] * 3)
    assert Gist("# all answers are equal ... from 1") in same


def test_a_list_of_numbers_is_a_field_in_every_format(tmp_path: Path) -> None:
    """Votes or shares of people, which ``rename`` gives the name that they are read by."""
    numbers = {"whole": [[3, 7], [6, 4]], "shares": [[0.3, 0.7], [1.0, 0.0]]}
    declared = 'choices = ["A", "B"]\nanswer = "key"\nanswer_is = "label"\n[rename]\nvotes = "human_counts"\n'
    columns = read_mapping(mapping(tmp_path, declared))
    for name, lists in numbers.items():
        rows = [
            {"question": "Which?", "A": "x", "B": f"y {each}", "key": "B", "votes": each}
            for each in lists
        ]
        write(tmp_path / f"{name}.jsonl", rows)
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*rows[0]], *([*map(str, row.values())] for row in rows)])
        for ending in ("jsonl", "parquet", "csv"):
            items = open_dataset(tmp_path / f"{name}.{ending}", columns=columns).splits["test"]
            assert [json.loads(item.fields["human_counts"]) for item in items] == lists


def test_a_file_of_nothing_known_gets_a_mapping_with_gaps() -> None:
    lines = proposal([{"height": 3, "width": 4}])
    assert '# columns: "height", "width"' in lines
    assert tomllib.loads("\n".join(lines))["answer"] == "..."


cells = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "question",
    "options",
    "answer",
    "label",
    "opa",
    "opb",
    "right",
    "wrong",
    "text",
    "id",
    "q.a",
    "",
]


@example([{"question": "0", "answer": {"": False, "\n\x1f": True}}])
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), cells, min_size=1), min_size=1, max_size=4))
def test_any_rows_get_lines_of_toml(rows: list[Row]) -> None:
    assert "question" in tomllib.loads("\n".join(proposal(rows)))


HEADER = ("Question", "Option A", "Option B", "Option C", "Option D", "Correct", "Topic")
ROWS = [
    (f"What is {n}?", f"{n}", f"{n + 1} b", f"{n + 2} c", f"{n + 3} d", "ABCD"[n % 4], "sums")
    for n in range(12)
]


def sheet(
    path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = HEADER, delimiter: str = ","
) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


def test_a_guess_that_fits_every_row_is_used_and_said(tmp_path: Path) -> None:
    data = open_dataset(sheet(tmp_path / "quiz.csv", ROWS))
    assert data.guess == (
        "quiz.csv: question = Question, choices = Option A..D, answer = Correct (label), subject = Topic"
    )
    assert [item.gold for item in data.splits["test"]] == [(n % 4,) for n in range(12)]
    assert data.columns == Columns(
        "Question", HEADER[1:5], answer="Correct", answer_is="label", subject="Topic"
    )
    again = open_dataset(
        tmp_path / "quiz.csv", columns=columns_of(mapping_table(data.columns), "mapping")
    )
    assert (again.digest, again.guess) == (data.digest, "")


@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ";"), ("b.csv", "\t"), ("c.tsv", "\t"), ("d.csv", ",")]
)
def test_cells_are_parted_by_what_parts_the_header(
    tmp_path: Path, name: str, delimiter: str
) -> None:
    read = open_dataset(sheet(tmp_path / name, ROWS, delimiter=delimiter))
    assert [item.question for item in read.splits["test"]] == [row[0] for row in ROWS]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ("0123", "index from 0"),
        ("1234", "number from 1"),
        ("abcd", "label"),
        (["Option A", "Option C"], "label"),
    ],
)
def test_answers_that_mean_one_thing(tmp_path: Path, answers: list[str], kind: str) -> None:
    rows = [(*row[:5], answers[n % len(answers)], row[6]) for n, row in enumerate(ROWS)]
    data = open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert f"answer = Correct ({kind})" in data.guess
    assert data.splits["test"][1].gold == ((1,) if len(answers) == 4 else (2,))


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        (
            [(*row[:5], "123"[n % 3], row[6]) for n, row in enumerate(ROWS)],
            HEADER,
        ),  # from 0 or from 1
        (
            [(*row, "DCBA"[n % 4]) for n, row in enumerate(ROWS)],
            (*HEADER, "Key"),
        ),  # two columns of other answers
        (
            [(*row[:5], "Z" if n == 7 else row[5], row[6]) for n, row in enumerate(ROWS)],
            HEADER,
        ),  # a row it does not fit
        (
            [(*row[:4], "" if n == 7 else "d", "ABC"[n % 3], row[6]) for n, row in enumerate(ROWS)],
            HEADER,
        ),  # D left empty
        (
            [("" if n == 7 else row[0], *row[1:], "a text") for n, row in enumerate(ROWS)],
            (*HEADER, "Context"),
        ),
        (
            [(*row, f"Was ist {n}?") for n, row in enumerate(ROWS)],
            ("Question EN", *HEADER[1:], "Question DE"),
        ),
        (
            [(*row[:3], *("true", "false")[n % 2 :][:1]) for n, row in enumerate(ROWS)],
            (*HEADER[:3], "Correct"),
        ),
    ],
    ids=["digits", "answers", "row", "choice", "question", "languages", "truth"],
)
def test_what_stays_open_stops(
    tmp_path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...]
) -> None:
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnknownShape, match="can't tell which columns"):
            open_dataset(sheet(tmp_path / "quiz.csv", rows, header), on_bad_item=on_bad_item)


def test_the_row_that_a_proposal_does_not_fit_is_named(tmp_path: Path) -> None:
    rows = [(*row[:5], "Z" if n == 7 else row[5], row[6]) for n, row in enumerate(ROWS)]
    with pytest.raises(UnknownShape) as refused:
        open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert any(
        "quiz.csv, row 9 (the header is row 1): the answer 'Z'" in each
        for each in refused.value.problems
    )


def refused_for_a_row(path: Path) -> list[str]:
    """The lines proposed for a table that opens under them without the one row that they name."""
    for on_bad_item in ("error", "skip"):
        with pytest.raises(UnfitRow) as refused:
            open_dataset(path, on_bad_item=on_bad_item)
    lines = list(refused.value.problems)
    columns = columns_of(tomllib.loads("\n".join(lines)), "proposed")
    [skipped] = open_dataset(path, columns=columns, on_bad_item="skip").skipped
    assert any(f"{RowPlace(Path(skipped.file), skipped.row)}: " in each for each in lines)
    return lines


BAD = {
    "letter": (lambda row: [*row[:5], "E", row[6]], "'E'"),
    "lower": (lambda row: [*row[:5], "b", row[6]], "'b'"),
    "option": (lambda row: [*row[:2], "", *row[3:]], "''"),
    "question": (lambda row: ["", *row[1:]], "''"),
    "short": (lambda row: row[:4], "4 cells"),
}
"""What is wrong with a row → the row, and what the reason says."""


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("rows", "fits"), [(3, 2), (7, 6), (12, 11), (300, 200)], ids=["3", "7", "12", "late"]
)
def test_a_bad_row_anywhere_is_named_above_a_whole_mapping(
    tmp_path: Path, rows: int, fits: int, bad: str
) -> None:
    spoil, reason = BAD[bad]
    table = [(f"What is {n}?", *ROWS[n % 12][1:]) for n in range(rows)]
    table[-1] = spoil(table[-1])
    lines = refused_for_a_row(sheet(tmp_path / "quiz.csv", table))
    assert f" {fits} of the " in lines[0]
    named = f"{tmp_path / 'quiz.csv'}, row {rows + 1} "
    assert [named in each and reason in each for each in lines[:2]] == [False, True]
    assert 'answer = "Correct"' in lines
    assert "..." not in "".join(lines)


def test_a_bad_row_of_another_file_is_named(tmp_path: Path) -> None:
    sheet(tmp_path / "dev.csv", ROWS)
    sheet(tmp_path / "test.csv", [*ROWS[:11], (*ROWS[11][:5], "E", "sums")])
    lines = refused_for_a_row(tmp_path)
    assert f"{tmp_path / 'test.csv'}, row 13 " in lines[1]


def test_rows_that_disagree_leave_gaps(tmp_path: Path) -> None:
    for count, bad in ((2, 1), (7, 2)):
        rows = [*ROWS[: count - bad], *[(*row[:5], "E", "sums") for row in ROWS[:bad]]]
        with pytest.raises(UnknownShape) as refused:
            open_dataset(sheet(tmp_path / "quiz.csv", rows))
        assert not isinstance(refused.value, UnfitRow)
        assert 'answer = "..."' in refused.value.problems


def test_one_bad_row_does_not_decide_from_which_number_answers_count(tmp_path: Path) -> None:
    """From 0 the 4 is bad, from 1 the 0 is."""
    rows = [(*ROWS[n][:5], digit, "sums") for n, digit in enumerate("1231240")]
    with pytest.raises(UnknownShape) as refused:
        open_dataset(sheet(tmp_path / "quiz.csv", rows))
    assert 'answer_is = "..."' in refused.value.problems
    counted = [(*ROWS[n][:5], digit, "sums") for n, digit in enumerate("0123019")]
    lines = refused_for_a_row(sheet(tmp_path / "quiz.csv", counted))
    assert 'answer_is = "index"' in lines


def test_a_mapping_that_fits_all_of_a_few_rows_comes_before_a_likelier_one(tmp_path: Path) -> None:
    rows = [{"query": "Q", "options": ["x", "y", "A"], "gold": gold} for gold in ("A", "A", "y")]
    lines = proposal(rows)
    assert "fits 3 of " in lines[0]
    assert 'answer_is = "text"' in lines


def test_all_files_decide(tmp_path: Path) -> None:
    """Digits of which one file alone has the 4 count from 1 in both."""
    for split, answers in {"test": "123", "dev": "1234"}.items():
        rows = [(*row[:5], answers[n % len(answers)], row[6]) for n, row in enumerate(ROWS)]
        sheet(tmp_path / f"{split}.csv", rows)
    data = open_dataset(tmp_path)
    assert "number from 1" in data.guess
    assert data.splits["test"][0].gold == data.splits["dev"][0].gold == (0,)


@settings(max_examples=20)
@given(
    st.permutations(range(7)), st.lists(st.integers(0, 3), min_size=2, max_size=6), st.booleans()
)
def test_a_guess_is_a_mapping(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], golds: list[int], as_text: bool
) -> None:
    """Beside a plain reference: the columns by their names, in whatever order they stand."""
    rows = [
        (
            f"Q{n}?",
            *(texts := [f"{n} {letter}" for letter in "wxyz"]),
            texts[gold] if as_text else "ABCD"[gold],
            "t",
        )
        for n, gold in enumerate(golds)
    ]
    path = tmp_path_factory.mktemp("quiz") / "quiz.csv"
    sheet(
        path,
        [tuple(row[place] for place in order) for row in rows],
        tuple(HEADER[place] for place in order),
    )
    read = open_dataset(path).splits["test"]
    assert [(item.question, item.gold) for item in read] == [
        (f"Q{n}?", (gold,)) for n, gold in enumerate(golds)
    ]
    assert {len(item.choices) for item in read} == {4}


MAPPINGS = st.builds(
    Columns,
    question=st.sampled_from([None, "ask"]),
    choices=st.sampled_from(["options", ("a", "b")]),
    answer=st.just("key"),
    answer_is=st.sampled_from(["any", "label", "number"]),
    labels=st.sampled_from([(), ("x", "y")]),
    subject=st.sampled_from([None, "area"]),
    rename=st.sampled_from([{}, {"question": "who"}]),
    shuffled=st.sampled_from([None, 0, 3]),
    others=st.booleans(),
)


@given(
    MAPPINGS
    | st.builds(
        Columns, right=st.just(("good",)), wrong=st.just(("bad",)), drop_empty=st.booleans()
    )
)
def test_a_mapping_as_a_table_is_the_mapping(columns: Columns) -> None:
    assert columns_of(json.loads(json.dumps(mapping_table(columns))), "table") == columns


TEXT = st.text(st.sampled_from('ab,;"\n'), max_size=6)


@settings(max_examples=30)
@given(st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=6))
def test_rows_count_as_in_a_spreadsheet(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]
) -> None:
    """Beside a plain count: line breaks in a cell make no row, empty lines do."""
    path = tmp_path_factory.mktemp("rows") / "quiz.csv"
    shown, lines = [], ["question,end"]
    for cell, empty in rows:
        lines += [""] * empty
        lines.append(f'"{cell.replace(chr(34), chr(34) * 2)}",x')
        shown.append(len(lines))
    path.write_text("\n".join(lines) + "\n", newline="")
    assert [RowPlace(path, row).number for row in range(len(rows))] == shown


def test_a_line_of_jsonl_counts_from_1_and_with_the_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "quiz.jsonl").write_text('\n{"question": "q"}\n\n{"question": "r"}\n')
    assert [RowPlace(tmp_path / "quiz.jsonl", row).number for row in range(2)] == [2, 4]
    assert str(RowPlace(tmp_path / "gone.csv", 3)).endswith("gone.csv, row 5 (the header is row 1)")
    assert str(RowPlace(tmp_path / "rows.parquet", 3)).endswith(
        "rows.parquet, row 3 (counted from 0)"
    )


def test_rows_that_stand_twice_are_named(tmp_path: Path) -> None:
    data = open_dataset(
        sheet(tmp_path / "quiz.csv", [*ROWS[:4], ROWS[1], (*ROWS[2][:5], "A", "sums")])
    )
    assert data.notes == (Gist("quiz.csv: rows 3 and 6, 4 and 7 "),)
    assert open_dataset(sheet(tmp_path / "quiz.csv", ROWS)).notes == ()


def test_the_same_question_about_another_passage_is_another(tmp_path: Path) -> None:
    rows = [(*ROWS[0], f"A passage, number {n}.") for n in range(3)]
    assert open_dataset(sheet(tmp_path / "quiz.csv", rows, (*HEADER, "Passage"))).notes == ()
