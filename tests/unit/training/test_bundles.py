"""Requests leave as a bundle, answers come back as a run: the same as one that was asked here, or refused by name."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import Run, evaluate
from choicewise.errors import DataError, ModelError, StoreError
from choicewise.extensions.training.bundles.answers import (
    Answered,
    import_answers,
    read_answers,
    write_run,
)
from choicewise.extensions.training.bundles.bundle import (
    ROWS,
    SCHEMA,
    Bundle,
    TokenizerRecord,
    open_bundle,
    rows_digest,
)
from choicewise.extensions.training.bundles.write import write_bundle
from choicewise.models.fake import HashModel
from choicewise.models.local.tokenizer import named_tokenizer
from choicewise.questions import Span
from choicewise.records import OBSERVATIONS, FileRecord
from choicewise.store.folder import BUNDLE
from choicewise.store.tables import file_record, read_table
from tests.helpers.study import Study

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/harness-v0"]
TOKENIZER = "bundled:merrow-bpe-512"
WINDOW = 1024


def hash_model(window: int = WINDOW) -> HashModel:
    """``fake:hash`` with the tokens of a real tokenizer, so that some choices are one token."""
    pytest.importorskip("tokenizers")
    model = HashModel()
    model.tokenizer, model.window = named_tokenizer(TOKENIZER), window
    return model


@pytest.fixture(scope="module")
def how(study: Study) -> dict[str, Any]:
    return {"data": study.data, "protocols": PROTOCOLS, "limit": 2}


@pytest.fixture(scope="module")
def direct(how: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of the model that is asked here."""
    return evaluate(model=hash_model(), out=tmp_path_factory.mktemp("direct") / "run", **how)


@pytest.fixture(scope="module")
def bundle(how: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """What that run was asked."""
    pytest.importorskip("tokenizers")
    return write_bundle(
        tokenizer=TOKENIZER, out=tmp_path_factory.mktemp("bundles") / "bundle", **how
    )


def places(bundle: Bundle) -> Iterator[tuple[str, int, int, Span]]:
    """The slow way to all that is scored: key, place, token, and the question that it belongs to."""
    for row in bundle.rows.to_pylist():
        ids = np.asarray(row["input_ids"], dtype=np.int32)
        for span in row["spans"]:
            question = Span(ids[: span["start"]], ids[span["start"] : span["stop"]])
            for place in range(span["start"], span["stop"]):
                yield row["key"], place, int(ids[place]), question
        for label in row["label_ids"]:
            assert row["label_at"] == len(ids)
            yield row["key"], row["label_at"], label, Span(ids, np.asarray([label], dtype=np.int32))


@pytest.fixture(scope="module")
def table(bundle: Bundle) -> pa.Table:
    """What ``fake:hash`` answers, a row a token."""
    asked = list(places(bundle))
    questions = list({question.key: question for _, _, _, question in asked}.values())
    answers = {questions[index].key: answer for index, answer in hash_model().answer(questions)}
    rows = []
    for key, place, token, question in asked:
        at, answer = place - len(question.context), answers[question.key]
        assert answer.tokens[at] == token
        rows.append((key, place, token, answer.logprobs[at], answer.ranks[at] + 1))
    names = ["key", "place", "token_id", "logprob", "rank"]
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def write(
    bundle: Bundle, folder: Path, table: pa.Table, name: str = "answers.parquet", **about: Any
) -> Path:
    """The file of these answers, with its JSON file beside."""
    file = folder / name
    if file.suffix == ".csv":
        pyarrow.csv.write_csv(table, file)
    else:
        pq.write_table(table, file)
    said = {"requests": bundle.digest, "model": "fake:hash", **about}
    file.with_suffix(".json").write_text(json.dumps(said))
    return file


def in_lists(table: pa.Table) -> pa.Table:
    """The same a row a sequence."""
    listed = table.group_by("key", use_threads=False).aggregate(
        [(name, "list") for name in table.column_names[2:]]
    )
    return listed.rename_columns(["key", "token_ids", "logprobs", "ranks"])


def in_sums(table: pa.Table, labels: set[str]) -> pa.Table:
    """Sums of spans, and log-probabilities of labels with their tokens."""
    alone = pc.is_in(table["key"], pa.array(labels))
    single = (
        table.filter(alone)
        .select(["key", "token_id", "logprob"])
        .rename_columns(["key", "token_id", "sum_logprob"])
    )
    many = table.filter(pc.invert(alone)).append_column(
        "greedy", pc.equal(table.filter(pc.invert(alone))["rank"], 1)
    )
    sums = many.group_by("key", use_threads=False).aggregate(
        [("logprob", "sum"), ("key", "count"), ("greedy", "min")]
    )
    return pa.concat_tables(
        [single, sums.rename_columns(["key", "sum_logprob", "num_tokens", "is_greedy"])],
        promote_options="permissive",
    )


def same(one: Run, other: Run) -> None:
    """Every number of the two runs is the same, to the bit, and so is all that was observed."""
    assert one.scores().equals(other.scores())
    assert [(row.identity.protocol, row.value, row.counts.n) for row in one.rows()] == [
        (row.identity.protocol, row.value, row.counts.n) for row in other.rows()
    ]
    orders = [(name, "ascending") for name in ("prompt", "item", "choice", "part", "null")]
    assert one.observations().sort_by(orders).equals(other.observations().sort_by(orders))


@pytest.mark.costly("three evaluations and two imports")
def test_answers_make_the_run_that_asking_makes(
    bundle: Bundle, table: pa.Table, direct: Run, tmp_path: Path
) -> None:
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(len(table))))
    file = write(bundle, tmp_path, shuffled, engine="toy", engine_version="2", revision="step 7")
    run = import_answers(bundle, file, tmp_path / "run")
    same(run, direct)
    nulls = set(run.observations()["null"].to_pylist())
    assert {None, ""} <= nulls  # PMI is among them
    imported = run.manifest.imported
    assert imported is not None
    assert (imported.tool, imported.settings["revision"]) == ("toy 2", "step 7")
    before = sorted((path, path.stat().st_mtime_ns) for path in run.folder.rglob("*"))
    import_answers(open_bundle(bundle.path), file, tmp_path / "run")
    assert sorted((path, path.stat().st_mtime_ns) for path in run.folder.rglob("*")) == before
    other = write(
        bundle,
        tmp_path,
        table.set_column(3, "logprob", pc.subtract(table["logprob"], 1)),
        "other.parquet",
    )
    with pytest.raises(StoreError, match="made for another model"):
        import_answers(bundle, other, tmp_path / "run")


def test_what_is_scored_is_what_a_loop_over_the_rows_says(bundle: Bundle, direct: Run) -> None:
    slow, scored = list(places(bundle)), bundle.scored
    keys = bundle.rows["key"].to_pylist()
    fast = [
        (keys[row], place, token)
        for row, place, token in zip(scored.row, scored.position, scored.token, strict=True)
    ]
    assert fast == [(key, place, token) for key, place, token, _ in slow]
    assert bundle.prompt_keys() == list(dict.fromkeys(question.key for _, _, _, question in slow))
    record, observed = bundle.record, direct.observations()
    assert set(bundle.prompt_keys()) == set(observed["key"].to_pylist())
    assert (record.rows, record.scored, record.tokens) == (
        len(keys),
        len(slow),
        int(bundle.lengths.sum()),
    )
    assert record.longest == max(map(len, bundle.rows["input_ids"].to_pylist()))
    contexts = {
        (row["prefix_group"], tuple(row["input_ids"][: _context(row)]))
        for row in bundle.rows.to_pylist()
    }
    assert (
        len(contexts)
        == len({group for group, _ in contexts})
        == len({context for _, context in contexts})
    )
    backwards = bundle.rows.take(pa.array(range(len(keys) - 1, -1, -1)))
    assert rows_digest(backwards) == bundle.digest


def _context(row: dict[str, Any]) -> int:
    return int(row["label_at"] if row["label_ids"] else row["spans"][0]["start"])


FORMS: dict[str, Callable[[pa.Table], list[tuple[str, pa.Table]]]] = {
    "CSV": lambda table: [("answers.csv", table)],
    "lists": lambda table: [("answers.parquet", in_lists(table))],
    "further columns": lambda table: [
        ("answers.parquet", table.append_column("argmax_id", table["token_id"]))
    ],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_the_same(
    bundle: Bundle, table: pa.Table, tmp_path: Path, form: str
) -> None:
    plain = read_answers(bundle, [write(bundle, tmp_path, table, "plain.parquet")])
    read = read_answers(
        bundle, [write(bundle, tmp_path, own, name) for name, own in FORMS[form](table)]
    )
    assert np.array_equal(plain.logprobs, read.logprobs)
    assert plain.ranks is not None
    assert np.array_equal(plain.ranks, read.ranks if read.ranks is not None else [])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_order_and_files_do_not_matter(
    bundle: Bundle, table: pa.Table, seed: int, files: int
) -> None:
    random = np.random.default_rng(seed)
    mixed = table.take(pa.array(random.permutation(len(table))))
    edges = [0, *sorted(random.integers(0, len(table), files - 1).tolist()), len(table)]
    with TemporaryDirectory() as folder:
        parts = [
            write(bundle, Path(folder), mixed[start:stop], f"{number}.parquet")
            for number, (start, stop) in enumerate(pairwise(edges))
        ]
        read = read_answers(bundle, parts)
    assert np.array_equal(read.logprobs, table["logprob"].to_numpy())
    assert read.ranks is not None
    assert np.array_equal(read.ranks + 1, table["rank"].to_numpy())


@pytest.mark.costly("every score of two runs")
def test_sums_alone_give_what_needs_no_single_tokens(
    bundle: Bundle, table: pa.Table, direct: Run, tmp_path: Path
) -> None:
    labels = {row["key"] for row in bundle.rows.to_pylist() if row["label_ids"]}
    answers = read_answers(bundle, [write(bundle, tmp_path, in_sums(table, labels))])
    run = write_run(bundle, answers, tmp_path / "run")
    assert answers.only_sums == len(bundle.rows) - len(labels)
    assert run.manifest.imported is not None
    unknown = f"unknown: {answers.only_sums:,} of {bundle.scored.questions:,} "
    assert run.manifest.imported.settings["per token"].startswith(unknown)
    values = [{row.identity.protocol: row.value for row in each.rows()} for each in (run, direct)]
    for name in (
        "mmlu/harness-v0:sum",
        "mmlu/cloze:sum",
        "mmlu/cloze:token_mean",
        "mmlu/cloze:pmi-empty",
    ):
        assert values[0][name] == values[1][name]
    assert np.isnan(values[0]["mmlu/original"])  # it asks for ranks
    spans = run.observations().filter(pc.is_valid(run.observations()["total"]))
    assert len(spans)
    counts = dict(
        zip(
            direct.observations()["key"].to_pylist(),
            direct.observations()["tokens"].to_pylist(),
            strict=True,
        )
    )
    assert spans["token_count"].to_pylist() == [
        len(counts[key]) for key in spans["key"].to_pylist()
    ]


def _set(table: pa.Table, column: str, value: object, row: int = 0) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    return table.set_column(
        table.column_names.index(column), column, pa.array(values, table.schema.field(column).type)
    )


def _all(table: pa.Table, column: str, value: object) -> pa.Table:
    kind = table.schema.field(column).type
    return table.set_column(
        table.column_names.index(column), column, pa.array([value] * len(table), kind)
    )


def _mostly(table: pa.Table) -> pa.Table:
    values = [
        -100.0 if number % 3 else value for number, value in enumerate(table["logprob"].to_pylist())
    ]
    return table.set_column(3, "logprob", pa.array(values))


def _scaled(table: pa.Table, factor: float) -> pa.Table:
    return table.set_column(3, "logprob", pc.multiply(table["logprob"], factor))


def _mixed_ranks(table: pa.Table) -> pa.Table:
    values = np.random.default_rng(0).permutation(table["rank"].to_numpy())
    return table.set_column(table.column_names.index("rank"), "rank", pa.array(values))


SPOILED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "missing": (
        lambda table: table[1:],
        "1 scored token of 1 row has no answer: [0-9a-f]{32} place",
    ),
    "all missing": (lambda table: table[:0], "scored tokens of .* rows have no answer"),
    "double": (
        lambda table: pa.concat_tables([table, table[:1]]),
        "1 token is answered twice: [0-9a-f]{32}",
    ),
    "unknown key": (
        lambda table: _set(table, "key", "0" * 32),
        "1 key .* bundle: 0000",
    ),
    "other token": (
        lambda table: _set(table, "token_id", 7),
        r"1 token_id differs .*\(another tokenizer",
    ),
    "beyond": (
        lambda table: _set(table, "token_id", 50_256),
        "1 token_id .* vocabulary of 512: 50256",
    ),
    "negative id": (
        lambda table: _set(table, "token_id", -1),
        "1 token_id .* vocabulary",
    ),
    "other place": (
        lambda table: _set(table, "place", 0),
        "1 place is not scored: [0-9a-f]{32} place 0",
    ),
    "far place": (lambda table: _set(table, "place", 10**9), "1 place is not scored"),
    "shifted": (
        lambda table: table.set_column(1, "place", pc.subtract(table["place"], 1)),
        "places are not scored",
    ),
    "NaN": (lambda table: _set(table, "logprob", float("nan")), "1 log-probability is NaN"),
    "infinite": (
        lambda table: _set(table, "logprob", float("-inf")),
        "1 log-probability is infinite",
    ),
    "positive": (
        lambda table: _set(table, "logprob", 0.5),
        "1 log-probability is above 0: .*: 0.5",
    ),
    "rank 0": (lambda table: _set(table, "rank", 0), "1 rank is below 1"),
    "log10": (
        lambda table: _scaled(table, 1 / np.log(10)),
        "ranks contradict their log-probabilities",
    ),
    "another scale": (
        lambda table: _scaled(table.drop_columns(["rank"]), 0.1),
        "more than 1 together .log2 or log10",
    ),
    "beyond float32": (
        lambda table: _set(table, "logprob", -1e300),
        "1 log-probability is infinite",
    ),
    "all the likeliest": (
        lambda table: _all(table, "rank", 1),
        "ranks contradict their log-probabilities",
    ),
    "mixed ranks": (_mixed_ranks, "ranks contradict their log-probabilities"),
    "a rank too high": (
        lambda table: _set(table, "rank", 10**6),
        "1 rank contradicts its log-probability",
    ),
    "null in a list": (
        lambda table: in_lists(_set(table, "logprob", None)),
        "1 row without logprobs",
    ),
    "zeros": (lambda table: _all(table, "logprob", 0.0), "answers are 0: a placeholder"),
    "mostly a placeholder": (_mostly, "answers are -100: a placeholder"),
    "null": (lambda table: _set(table, "logprob", None), "1 row without logprob"),
    "text": (
        lambda table: _all(table.cast(table.schema), "key", "x"),
        "1 key .* bundle: x",
    ),
    "no column": (
        lambda table: table.drop_columns(["place"]),
        "answers have key, place, token_id, logprob or",
    ),
    "short list": (
        lambda table: in_lists(table[1:]),
        r"1 list .* length: [0-9a-f]{32} \(",
    ),
    "list in another order": (
        lambda table: in_lists(table.sort_by([("key", "ascending"), ("token_id", "descending")])),
        "token_ids differ",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_answers_that_cannot_be_right_are_refused_by_name(
    bundle: Bundle, table: pa.Table, tmp_path: Path, case: str
) -> None:
    spoil, said = SPOILED[case]
    file = write(bundle, tmp_path, spoil(table))
    with pytest.raises(DataError, match=said):
        import_answers(bundle, file, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sums_of_another_number_of_tokens_are_refused(
    bundle: Bundle, table: pa.Table, tmp_path: Path
) -> None:
    labels = {row["key"] for row in bundle.rows.to_pylist() if row["label_ids"]}
    sums = in_sums(table, labels)
    span, label = len(sums) - 1, 0
    cases = {
        r"1 sum counts other tokens: [0-9a-f]{32} \(999 of": _set(sums, "num_tokens", 999, span),
        "1 sum .* label .* token_id": _set(sums, "token_id", None, label),
        "1 sum is given twice": pa.concat_tables([sums, sums[span:]]),
        "is answered twice": pa.concat_tables([sums, sums[:1]]),
        "tokens? of 1 row ha(s|ve) no answer": sums[:-1],
    }
    for said, spoiled in cases.items():
        with pytest.raises(DataError, match=said):
            read_answers(bundle, [write(bundle, tmp_path, spoiled)])
    both = [write(bundle, tmp_path, sums), write(bundle, tmp_path, table, "tokens.csv")]
    with pytest.raises(DataError, match="tokens are answered twice"):
        read_answers(bundle, both)


def test_what_lies_beside_answers_is_needed(
    bundle: Bundle, table: pa.Table, tmp_path: Path
) -> None:
    cases: dict[str, dict[str, Any]] = {
        f"answers the requests ffffffffffff, .* holds {bundle.digest[:12]}": {"requests": "f" * 64},
        "name the model": {"model": ""},
        "name the answered requests": {"requests": None},
    }
    for said, about in cases.items():
        with pytest.raises(DataError, match=said):
            read_answers(bundle, [write(bundle, tmp_path, table, **about)])
    (tmp_path / "answers.json").unlink()
    with pytest.raises(DataError, match=r'answers.json is missing.*write \{"requests"'):
        read_answers(bundle, [tmp_path / "answers.parquet"])
    files = [
        write(bundle, tmp_path, table[:50], "a.csv"),
        write(bundle, tmp_path, table[50:], "b.csv", model="other"),
    ]
    with pytest.raises(DataError, match="different models: fake:hash and other"):
        read_answers(bundle, files)
    assert read_answers(bundle, files, model="mine").model == "mine"
    with pytest.raises(DataError, match=f"needs {len(table):,} log-probabilities, and there are 3"):
        write_run(bundle, Answered("short", np.zeros(3, np.float32)), tmp_path / "run")


def test_a_bundle_that_was_changed_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="bundle of requests"):
        open_bundle(tmp_path)
    copy = copytree(bundle.path, tmp_path / "copy")
    rows, record = copy / ROWS, json.loads((copy / BUNDLE).read_text())
    pq.write_table(bundle.rows[1:], rows)
    with pytest.raises(StoreError, match="requests.parquet has .* bytes"):
        open_bundle(copy)
    record["files"].pop(ROWS)
    for changes, said in (
        ({}, "is not listed"),
        ({"version": 2}, "version 2"),
        ({"window": "9"}, "is damaged"),
    ):
        (copy / BUNDLE).write_text(json.dumps(record | changes))
        with pytest.raises(StoreError, match=said):
            open_bundle(copy)


def _span(start: int | None, stop: int | None) -> list[dict[str, int | None]]:
    return [{"start": start, "stop": stop}]


STRANGE: dict[str, tuple[dict[str, Any], str]] = {
    "a span beyond its row": (
        {"spans": _span(0, 2**31 - 1)},
        "row 1 .*: a span .* its tokens",
    ),
    "a span before its row": ({"spans": _span(-5, 1)}, "row 1 .*: a span .* its tokens"),
    "an empty span": ({"spans": _span(1, 1)}, "row 1 .*: a span .* its tokens"),
    "a span that repeats": (
        {"spans": _span(0, 2) * 9},
        "row 1 .*: a span overlaps",
    ),
    "a span without an end": ({"spans": _span(1, None)}, "row 1 .*: a span is null"),
    "no span where one belongs": ({"spans": [None]}, "row 1 .*: a span is null"),
    "no spans": ({"spans": None}, "row 1 .*: spans is null"),
    "nothing asked": ({"spans": [], "label_ids": []}, "row 1 .*: no token is scored"),
    "no key": ({"key": None}, "row 1 .*: key is null"),
    "no tokens": ({"input_ids": None}, "row 1 .*: input_ids is null"),
    "no token": ({"input_ids": [1, None, 2]}, "row 1 .*: a token is null"),
    "a negative token": ({"input_ids": [1, -7, 2]}, "row 1 .*: a token .* negative"),
    "no label": ({"label_ids": [None]}, "row 1 .*: a label is null"),
    "labels elsewhere": (
        {"label_ids": [5], "label_at": 1},
        "row 1 .*: label_at is",
    ),
    "labels nowhere": (
        {"label_ids": [5], "label_at": None},
        "row 1 .*: label_at is",
    ),
}


def forge(bundle: Bundle, folder: Path, rows: list[dict[str, Any]], **said: Any) -> Path:
    """A bundle with these rows, whose record lists the file as it is, as a stranger may write one."""
    path = copytree(bundle.path, folder)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path / ROWS)
    record = json.loads((path / BUNDLE).read_text()) | said
    record["files"][ROWS] = asdict(file_record(path / ROWS))
    (path / BUNDLE).write_text(json.dumps(record))
    return path


@pytest.mark.parametrize("case", STRANGE)
def test_rows_that_cannot_be_asked_are_refused_by_number(
    bundle: Bundle, tmp_path: Path, case: str
) -> None:
    changes, said = STRANGE[case]
    rows = pq.read_table(bundle.path / ROWS).slice(0, 3).to_pylist()
    rows[1] |= changes
    with pytest.raises(StoreError, match=said):
        open_bundle(forge(bundle, tmp_path / "forged", rows))


def test_a_bundle_that_counts_its_rows_otherwise_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    rows = pq.read_table(bundle.path / ROWS).to_pylist()
    with pytest.raises(StoreError, match="several rows .* one key"):
        open_bundle(forge(bundle, tmp_path / "twice", [*rows, rows[0]]))
    with pytest.raises(StoreError, match="states longest 1, but"):
        open_bundle(forge(bundle, tmp_path / "longest", rows, longest=1))
    large = TokenizerRecord(name="x", digest="", vocabulary=2**60, bos=None, eos=None)
    with pytest.raises(StoreError, match="a tokenizer of 1,152,921,504,606,846,976 tokens"):
        open_bundle(forge(bundle, tmp_path / "vocabulary", rows, tokenizer=asdict(large)))
    with pytest.raises(StoreError, match="2 other rows"):
        open_bundle(
            forge(bundle, tmp_path / "several", [{**row, "spans": None} for row in rows[:3]])
        )


def test_observations_of_other_tokens_than_the_rows_are_refused(
    bundle: Bundle, table: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = read_answers(bundle, [write(bundle, tmp_path, table)])

    def cut(path: Path, schema: pa.Schema, record: FileRecord | None) -> pa.Table:
        read = read_table(path, schema, record)
        return _set(read, "tokens", None) if schema == OBSERVATIONS else read

    monkeypatch.setattr("choicewise.extensions.training.bundles.answers.read_table", cut)
    with pytest.raises(StoreError, match="has other tokens"):
        write_run(bundle, answers, tmp_path / "run")


@pytest.mark.costly("two bundles")
def test_what_no_bundle_can_ask_is_refused_by_name_and_what_does_not_fit_is_counted(
    study: Study, tmp_path: Path
) -> None:
    asked = {"tokenizer": "bytes", "data": study.data, "limit": 1}
    with pytest.warns(UserWarning, match="mmlu/helm is refused: .* no text"):
        bundle = write_bundle(
            **asked,
            protocols=["mmlu/cloze:sum", "mmlu/helm"],
            window=100_000,
            out=tmp_path / "bundle",
        )
    assert (set(bundle.protocols), set(bundle.record.refused)) == (
        {"mmlu/cloze:sum"},
        {"mmlu/helm"},
    )
    with pytest.raises(StoreError, match="already exists"):
        write_bundle(**asked, protocols=["mmlu/cloze:sum"], window=100_000, out=tmp_path / "bundle")
    for window, said in ((None, "pass a window"), (0, "must be at least 1")):
        with pytest.raises(ModelError, match=said):
            write_bundle(
                **asked, protocols=["mmlu/cloze:sum"], window=window, out=tmp_path / "none"
            )
    with pytest.raises(ModelError, match="Blanks"):
        write_bundle(
            **asked,
            protocols=["masked-lm/pseudo-loglikelihood"],
            window=100_000,
            out=tmp_path / "none",
        )
    narrow = write_bundle(**asked, protocols=["mmlu/cloze:sum"], window=3, out=tmp_path / "narrow")
    assert narrow.record.rows == 0
    assert all("too long" in reason for reason in narrow.record.missing)
    run = write_run(narrow, Answered("nobody", np.zeros(0, np.float32)), tmp_path / "run")
    assert {(row.counts.n, row.counts.missing > 0) for row in run.rows()} == {(0, True)}


@pytest.mark.costly("an evaluation, a bundle and its import")
def test_a_run_by_the_bundle_is_one_by_the_data(study: Study, tmp_path: Path) -> None:
    """Shots, windows and limits cut the same tokens, whoever answers."""
    how = {
        "data": study.data,
        "protocols": ["mmlu/original", "mmlu/harness-v1", "mmlu/cloze"],
        "limit": 1,
    }
    narrow = hash_model(window=300)
    direct = evaluate(model=narrow, out=tmp_path / "direct", **how)
    bundle = write_bundle(tokenizer=TOKENIZER, window=300, out=tmp_path / "bundle", **how)
    scored = bundle.scored
    starts = zip(scored.starts[:-1].tolist(), scored.starts[1:].tolist(), strict=True)
    pairs = [
        (bundle.ids(int(scored.row[at]))[: scored.position[at]], scored.token[at:stop])
        for at, stop in starts
    ]
    questions = [Span(context, tokens.astype(np.int32)) for context, tokens in pairs]
    answered = dict(narrow.answer(questions))
    answers = Answered(
        "fake:hash",
        np.concatenate([answered[place].logprobs for place in range(len(questions))]),
        np.concatenate([answered[place].ranks for place in range(len(questions))]),
    )
    assert 200 < bundle.record.longest <= 301
    same(write_run(bundle, answers, tmp_path / "run"), direct)
