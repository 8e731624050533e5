"""Bad questions from the file to the prompt, as a user meets them: refused with row and reason, or left as they are."""

import gzip
import json
import re
import unicodedata
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import ChoicewiseError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.requests.render import read_rendered

PROTOCOL = "options/cloze:sum"
GOOD = {"question": "Which one?", "choices": ["this", "that"], "answer": "A"}

ODD = [
    *("None", "NA", "nan", "null", "TRUE", "007", "1e5", "1.50", "-0"),
    *(
        "{question}",
        "{{7*7}}",
        "{0.__class__}",
        "${HOME}",
        "%s %(a)s",
        "{% for x in y %}",
        "a\\nb \\ c",
    ),
    *(
        "cr\r\nlf\n",
        " spaces ",
        "\u202egnp.exe",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\x1b[31m",
        "\ufeff",
    ),
    *("caf\u00e9", "cafe\u0301", "=1+1", "<b>&amp;</b>", '"quoted"', "'", "a\tb"),
]
"""Texts that some tool reads as something else: as a number, nothing, a template, a formula, markup, another text."""


def write(folder: Path, *rows: object, name: str = "quiz.jsonl") -> Path:
    """JSON Lines of ``rows``; texts stand as they are."""
    path = folder / name
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def run(data: Path, out: Path, *more: str) -> int:
    words = ["--model", "fake:hash", "--data", str(data), "--protocol", PROTOCOL, "--out", str(out)]
    return invoke(["run", *words, *more])


def questions(out: Path) -> list[tuple[str, list[str]]]:
    """Question and choices of every item of the run folder."""
    table = pq.read_table(out / "items.parquet")
    return [*zip(table["question"].to_pylist(), table["choices"].to_pylist(), strict=True)]


def test_odd_texts_reach_prompt_and_folder_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unicodedata.normalize("NFC", ODD[-6]) == ODD[-7], "two texts, though they look alike"
    data = write(
        tmp_path,
        *({**GOOD, "question": f"What is {text}?", "choices": [text, "that"]} for text in ODD),
    )
    assert run(data, tmp_path / "run") == 0
    assert questions(tmp_path / "run") == [(f"What is {text}?", [text, "that"]) for text in ODD]
    capsys.readouterr()
    assert invoke(["prompts", "--data", str(data), "--protocol", PROTOCOL]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [
        f"What is {text}?" in line["context"] for line, text in zip(printed, ODD, strict=True)
    ] == [True] * len(ODD)
    assert [line["continuations"] for line in printed] == [[f" {text}", " that"] for text in ODD]
    (tmp_path / "requests.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in printed), encoding="utf-8"
    )
    back = read_rendered(tmp_path / "requests.jsonl").dataset.splits["test"]
    assert [item.choices[0] for item in back] == [f" {text}" for text in ODD]


REFUSED = {
    "an empty option": ({**GOOD, "choices": ["this", ""]}, "choice 1 .* is '', .*drop_empty"),
    "an option of white space": (
        {**GOOD, "choices": ["this", " \t"]},
        "choice 1 .*can't be scored",
    ),
    "a letter beyond the options": ({**GOOD, "answer": "C"}, "'C' is not one of A, B"),
    "several letters": ({**GOOD, "answer": "A, B"}, "'A, B' is not one of A, B"),
    "an index among letters": (
        {**GOOD, "answer": 1},
        "'1' reads as index, earlier ones as label",
    ),
    "NUL": ({**GOOD, "question": "a\0b"}, "has a NUL character"),
    "lone surrogate": (
        '{"question": "\\ud800", "choices": ["a", "b"], "answer": "A"}',
        "lone surrogate",
    ),
    "not valid JSON": ('{"question": "Q", "choices": ["a", "b"], "answer": "A"', "not valid JSON"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_row_is_refused_with_its_place_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    row, reason = REFUSED[name]
    data = write(tmp_path, GOOD, row)
    with pytest.raises(ChoicewiseError, match=f"(?s)quiz.jsonl, line 2 .*{reason}"):
        run(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    data = write(tmp_path, *({**GOOD, "id": name} for name in (1, 2, "1")))
    with pytest.raises(ChoicewiseError, match=r"line 1 .* and .*line 3 .* have the id '1'"):
        run(data, tmp_path / "run", "--on-bad-item", "skip")


def test_an_index_beyond_the_options_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path, {**GOOD, "answer": 0}, {**GOOD, "answer": 2})
    with pytest.raises(ChoicewiseError, match="line 2 .* the answer is index 2, outside 0 to 1"):
        run(data, tmp_path / "run")


def test_skipped_rows_are_counted_beside_the_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write(tmp_path, GOOD, {**GOOD, "answer": "C"}, {**GOOD, "choices": ["this", ""]})
    assert run(data, tmp_path / "run", "--on-bad-item", "skip", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["n"], row["skipped"]) == (1, 2)
    assert [
        "'C' is not one" in row["skipped_reasons"][0]["reason"],
        len(row["skipped_reasons"]),
    ] == [True, 2]


def test_an_option_that_is_there_twice_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path, GOOD, {**GOOD, "choices": ["this", "this"]}), tmp_path / "run") == 0
    assert "item test/1" in capsys.readouterr().err


def test_the_order_of_the_questions_is_part_of_the_data(tmp_path: Path) -> None:
    rows = [{**GOOD, "id": str(number), "question": f"{number}?"} for number in range(3)]
    assert run(write(tmp_path, *rows), tmp_path / "run") == 0
    with pytest.raises(ChoicewiseError, match="for another dataset"):
        run(write(tmp_path, *rows[::-1]), tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            "question,A,B,answer\nCaf\u00e9?,a,b,A\n".encode("latin-1"),
            "not UTF-8: byte 0xe9 .*iconv -f cp1252",
        ),
        (
            b"question,A,B,answer\nP,a,b,A\nQ,a,b\nR,a,b,c,A\n",
            "2 rows can't be used.*3 cells .* header of 4.*5",
        ),
        (b'question,A,B,answer\n"Q,a,b,A\nR,a,b,A\n', "CSV at line 3"),
        (b'question,A,B,answer\n"Q"x,a,b,A\n', "CSV at line 2"),
        (b"question,A,A,answer\nQ,a,b,A\n", "two columns 'A'"),
        (b"PK\x03\x04" + bytes(40), "quiz.csv is compressed; unpack it"),
        (gzip.compress(b"question,A,B,answer\nQ,a,b,A\n"), "quiz.csv is compressed; unpack it"),
        (
            "question,A,B,answer\nQ,a,b,A\n".encode("utf-16"),
            "not UTF-8: byte 0xff at offset 0.*iconv -f utf-16",
        ),
    ],
    ids=["latin-1", "short rows", "open quote", "quote inside", "twice", "zip", "gzip", "utf-16"],
)
def test_a_damaged_table_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    data = tmp_path / "quiz.csv"
    data.write_bytes(content)
    with pytest.raises(ChoicewiseError, match=f"(?s){reason}") as raised:
        run(data, tmp_path / "run")
    assert str(data) in str(raised.value)


def test_a_mark_of_byte_order_and_lines_in_quotes_are_no_text(tmp_path: Path) -> None:
    data = tmp_path / "quiz.csv"
    data.write_bytes('\ufeffquestion,A,B,answer\n"one\ntwo","a, ""b""",c,A\n'.encode())
    assert run(data, tmp_path / "run") == 0
    assert questions(tmp_path / "run") == [("one\ntwo", ['a, "b"', "c"])]


def test_a_question_longer_than_the_window_is_missing_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HashModel, "window", 100, raising=False)
    assert run(write(tmp_path, {**GOOD, "question": "long " * 100}, GOOD), tmp_path / "run") == 0
    assert re.search(
        "1 of 2 items is missing.*too long: ", " ".join(capsys.readouterr().out.split())
    )


SHOWN: dict[str, str | None] = {
    **dict.fromkeys(("{question.__class__}", "{question!r}", "{question:>1000000000}", "{0}")),
    "{{7*7}} {question}": "{7*7} Which one?",
    "{{{{ ''.__class__ }}}} {question}": "{{ ''.__class__ }} Which one?",
    "{{% for x in y %}}{question}": "{% for x in y %}Which one?",
    "%s {question}": "%s Which one?",
}


@pytest.mark.parametrize(("question", "shown"), SHOWN.items())
def test_a_template_of_a_protocol_file_computes_nothing(
    question: str, shown: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Holes are names of texts; whatever else another template language would obey is text or an error."""
    (axes,) = resolve(PROTOCOL).values()
    assert "{question}" in axes.question
    mine = tmp_path / "mine.toml"
    mine.write_text(
        f'name = "mine"\nbase = "options/cloze"\n[protocol]\nquestion = {json.dumps(question)}\n'
    )
    line = ["prompts", "--data", str(write(tmp_path, GOOD)), "--protocol", str(mine)]
    if shown is None:
        with pytest.raises(ChoicewiseError, match="mine: .*column") as error:
            invoke(line)
        assert question.strip("{}") in str(error.value)
    else:
        assert invoke(line) == 0
        context = json.loads(capsys.readouterr().out.splitlines()[0])["context"]
        assert context.startswith(shown), context


@pytest.mark.parametrize(
    "text", ["question = !!python/object/apply:os.getcwd []", "question = !function own.asked"]
)
def test_a_protocol_file_knows_no_tags(text: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(f'name = "mine"\n[protocol]\n{text}\n')
    with pytest.raises(ChoicewiseError, match=r"mine.toml .* TOML: .*at line 3"):
        invoke(["prompts", "--data", str(write(tmp_path, GOOD)), "--protocol", str(mine)])
