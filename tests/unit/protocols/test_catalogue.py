"""The catalogue: complete, cited, in families and suites, and one place where names become protocols."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from choicewise import evaluate
from choicewise.data.benchmarks import Benchmark, benchmark, benchmarks
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ProtocolError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import (
    SCORES,
    Entry,
    entries,
    entry,
    inherit,
    one,
    parse,
    read_axes,
    resolve,
)
from choicewise.protocols.protocol import (
    NEUTRAL,
    RENDERED,
    Protocol,
    family,
    parse_signature,
    short_signature,
    signature,
)
from choicewise.protocols.readings import READINGS
from choicewise.protocols.readings import SCORES as ALL_SCORES
from choicewise.protocols.shots import curated
from tests.helpers.protocols import mmlu_protocol

ENTRIES = entries()


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_every_entry_is_complete_and_cited(known: Entry) -> None:
    assert known.title
    assert re.search(r"\d{4}|EleutherAI", known.citation)
    commit, release = (
        r"https://github\.com/\S+/[0-9a-f]{8,40}(/\S+)?",
        r"https://pypi\.org/project/\S+/[0-9.]+/",
    )
    paper = r"https://arxiv\.org/abs/\d{4}\.\d{5}"  # of ways that a paper words and no code does
    assert re.fullmatch(f"{commit}|{release}|{paper}", known.source)
    assert known.description.endswith(".")
    for name, protocol in known.protocols.items():
        assert (parse_signature(signature(protocol)), resolve(name)) == (protocol, {name: protocol})
        assert resolve(signature(protocol)) == {name: protocol}
    assert (len(set(known.protocols.values())), resolve(known.name)) == (
        len(known.protocols),
        known.protocols,
    )
    assert entry(known.name) is known
    assert set(known.published.values()) <= set(known.protocols)


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_an_entry_is_named_like_its_file_and_about_a_benchmark_that_is_declared(
    known: Entry,
) -> None:
    """One of the name of its family, but for families of several benchmarks; of splits that the benchmark has."""
    assert all(name.partition(":")[0] == known.name for name in known.protocols)
    family = known.name.partition("/")[0]
    (named,) = {protocol.benchmark for protocol in known.protocols.values()}
    assert named == family if family in benchmarks() else named in {"any", family, *benchmarks()}
    protocol = next(iter(known.protocols.values()))
    if named in benchmarks():
        splits = set(benchmarks()[named].files)
        assert protocol.split is None or protocol.split in splits
        assert not protocol.shots or protocol.sampler == "curated" or protocol.shot_split in splits


@pytest.mark.parametrize("known", benchmarks().values(), ids=lambda known: known.name)
def test_every_benchmark_is_complete_and_cited(known: Benchmark) -> None:
    assert known.title
    assert re.search(r"\d{4}", known.citation)
    assert known.source.startswith("https://")
    assert known.description.endswith(".")
    assert known.repository.count("/") == 1
    assert known.files
    assert all(
        path.rpartition(".")[2] in ("parquet", "jsonl", "json", "csv")
        for path in known.files.values()
    )


TWELVE = (
    *("arc-easy", "arc-challenge", "hellaswag", "openbookqa", "piqa", "winogrande"),
    *("commonsenseqa", "siqa", "copa", "boolq", "race", "sciq"),
)


def test_twelve_benchmarks_have_todays_harness_and_what_each_was_published_with() -> None:
    names = {known.name for known in ENTRIES}
    assert {f"{name}/harness" for name in TWELVE} <= names
    assert {
        f"{name}/harness-v1" for name in TWELVE if name not in ("commonsenseqa", "siqa")
    } <= names
    eight = (
        "arc-easy",
        "arc-challenge",
        "hellaswag",
        "openbookqa",
        "piqa",
        "winogrande",
        "copa",
        "boolq",
    )
    assert {f"{name}/gpt3" for name in eight} <= names
    assert {
        "hellaswag/helm",
        "openbookqa/helm",
        "commonsenseqa/helm",
        "arc-challenge/meta-llama3",
    } <= names


ASKED = [
    "arc-challenge/harness",
    "arc-challenge/harness-v1",
    "hellaswag/harness-v1",
    "winogrande/harness-v1",
]
ASKED += ["hellaswag/harness", "hellaswag/helm", "openbookqa/gpt3"]
MMLU = [
    "original",
    "original-pr13",
    "helm",
    "harness-v0",
    "harness-v1",
    "harness-v0.4",
    "harness-v0.4-early",
]
MMLU += ["olmes-mcf", "olmes-cf", "cloze", "letter-text"]


def test_what_no_prompt_shows_is_as_published(snapshot: SnapshotAssertion) -> None:
    """Of the twelve benchmarks where shots come from, and of MMLU what is done with the tokens."""
    twelve = ["split", "shots", "sampler", "seed", "fit", "bos", "boundary"]
    mmlu = ["fit", "limit", "bos", "boundary", "score", "outside", "aggregation", "ties", "shots"]
    told = {}
    for names, axes in ((ASKED, twelve), ([f"mmlu/{name}" for name in MMLU], mmlu)):
        for name in names:
            headline, protocol = next(iter(resolve(name).items()))
            told[headline] = " ".join(f"{axis}:{getattr(protocol, axis)}" for axis in axes)
    assert told == snapshot
    norm, helm = one("hellaswag/harness-v1:acc_norm").protocol, one("openbookqa/helm").protocol
    assert (norm.score, norm.ties) == ("char_mean_bare", "first")
    assert (helm.score, helm.null, helm.ties) == ("pmi", "Answer:", "split")


def test_catalogue_holds_the_published_ways_and_no_protocol_twice() -> None:
    assert {known.name for known in ENTRIES} >= {f"mmlu/{name}" for name in MMLU}
    every = [protocol for known in ENTRIES for protocol in known.protocols.values()]
    assert len(set(every)) == len(every)
    assert set(resolve("mmlu")) == {
        name for known in ENTRIES for name in known.protocols if name.startswith("mmlu/")
    }


def test_a_beginning_of_names_stands_for_them_all() -> None:
    quoted = ("mean-forward", "mean-generate", "mean-masked", "sum-forward", "sum-surprisal")
    assert set(resolve("options/quoted")) == {f"options/quoted-{name}" for name in quoted}
    assert resolve("mmlu-1001") == resolve("mmlu")
    assert len(resolve("mmlu-1001")) > 30
    assert set(resolve("options")) > set(resolve("options/quoted"))
    assert set(resolve("mmlu/harness-v0.4")) == {"mmlu/harness-v0.4"}


def test_the_cloze_entry_has_every_score() -> None:
    protocols = resolve("options/cloze")
    assert set(protocols) == {f"options/cloze:{score}" for score in ALL_SCORES}
    assert all(protocol.score == name.partition(":")[2] for name, protocol in protocols.items())
    assert len({protocol.prompt_digest for protocol in protocols.values()}) == 1


def test_an_entry_that_scores_texts_has_every_score_headline_first() -> None:
    names = list(resolve("mmlu/harness-v0"))
    assert names[0] == "mmlu/harness-v0:char_mean_bare"
    assert sorted(names) == sorted(f"mmlu/harness-v0:{score}" for score in SCORES)
    assert len({protocol.prompt_digest for protocol in resolve("mmlu/harness-v0").values()}) == 1
    assert next(iter(resolve("mmlu/olmes-cf"))) == "mmlu/olmes-cf:char_mean"


def test_null_contexts_are_four_protocols_and_published_names_of_scores_become_ours() -> None:
    for score, null in {
        "empty": "",
        "answer": "Answer:",
        "answer-space": "Answer: ",
        "colon": ":",
    }.items():
        (protocol,) = resolve(f"mmlu/harness-v0:pmi-{score}").values()
        assert (protocol.score, protocol.null) == ("pmi", null)
    ours = {
        "mmlu/harness-v0:acc_norm": "mmlu/harness-v0:char_mean_bare",
        "mmlu/harness-v0:acc": "mmlu/harness-v0:sum",
    }
    ours |= {"mmlu/olmes-cf:acc_uncond": "mmlu/olmes-cf:pmi-answer"}
    for published, name in ours.items():
        assert list(resolve(published)) == [name]
        assert name in entry(published).protocols


def test_resolve_takes_several_selectors_and_names_a_signature_nobody_published_by_its_digest() -> (
    None
):
    names = list(resolve("mmlu/original", "mmlu/helm", "mmlu/harness-v0:acc", "mmlu/original"))
    assert names == ["mmlu/original", "mmlu/helm", "mmlu/harness-v0:sum"]
    protocol = mmlu_protocol(header="mine|")
    assert resolve(signature(protocol)) == {short_signature(protocol): protocol}


@pytest.mark.parametrize(
    ("selector", "near"),
    [
        ("mmlu/orignal", "mmlu/original"),
        ("mmlu/harness_v0", "mmlu/harness-v0"),
        ("mmlu/harness-v0:accnorm", "mmlu/harness-v0:acc_norm"),
        ("mmul", "mmlu"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(selector: str, near: str) -> None:
    with pytest.raises(
        ProtocolError, match=f"protocol is called '{selector}'; did you mean .*{near}"
    ):
        resolve(selector)


@pytest.mark.parametrize(
    ("selector", "known"),
    [
        *(
            (f"bbh/leaderboard{change}", r"its family has bbh/harness \(")
            for change in ("", "@shots=0")
        ),
        ("bbh/leaderboard:acc_norm", r"did you mean bbh/harness:acc_norm\?"),
        ("cmmlu/llama", r"its family has cmmlu/harness and cmmlu/original \("),
        (
            "race/nothing-so-named",
            r"its family has race/harness-v1, race/harness and race/lighteval \(",
        ),
    ],
)
def test_a_variant_that_a_benchmark_lacks_comes_with_those_that_it_has(
    selector: str, known: str
) -> None:
    with pytest.raises(ProtocolError, match=f"protocol is called '.*'; {known}"):
        resolve(selector)


def test_tasks_that_the_harness_has_for_the_leaderboard_are_named() -> None:
    for name, tasks in {"musr": "tasks leaderboard_musr", "bbh": "tasks leaderboard_bbh"}.items():
        assert f"The {tasks}" in entry(f"{name}/harness").description
    assert "The task leaderboard_mmlu_pro" in entry("mmlu-pro/harness").description


def test_an_unknown_name_without_a_near_one_comes_with_what_to_do() -> None:
    message = r"'m'; available: .*`choicewise protocols` .* \.toml"
    with pytest.raises(ProtocolError, match=message):
        resolve("m")


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


BENCHMARK = '[protocol]\nbenchmark = "mmlu"\n'


def test_a_users_file_is_a_protocol_over_the_defaults(tmp_path: Path) -> None:
    text = f'about = "Ours."\n{BENCHMARK}shots = 0\nchoices = "any"\nshot_split = "-"\nheader = "Quiz\\n"\n'
    path = write(tmp_path / "quiz.toml", text)
    expected = mmlu_protocol(shots=0, choices=None, shot_split=None, header="Quiz\n")
    assert resolve(path) == {"quiz": expected}
    assert resolve(write(tmp_path / "other.toml", f'name = "our quiz"\n{BENCHMARK}')) == {
        "our quiz": mmlu_protocol()
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[protocol\n", r"is not valid TOML: .*line 1"),
        (f"protocol = {'[' * 5000}", "TOML: .* nested too deeply"),
        ("[protocol]\nshot = 5\n", r"unknown key 'shot'; did you mean shots\?"),
        ("[protocol]\nzzz = 5\n", r"unknown key 'zzz'; available: benchmark, split"),
        ("[protocols]\nshots = 5\n", r"unknown key 'protocols'; did you mean protocol\?"),
        (f'{BENCHMARK}shots = "5"\n', r"axis shots is '5'; it must be int"),
        (f'{BENCHMARK}header = ["x"]\n', r"axis header is \['x'\]; it must be str"),
        (f'{BENCHMARK}score = "median"\n', "axis score is 'median'; .* sum"),
        (f'{BENCHMARK}score = "pmi"\n', "score pmi needs .* null"),
        ("protocol = 5\n", r"protocol is 5; .* table, \[protocol\]"),
        (
            "",
            r'no benchmark; add benchmark = "\.\.\." under \[protocol\], or a base = "mmlu/original"',
        ),
        (
            'base = "mmlu/orignal"\n',
            "base 'mmlu/orignal' .* mmlu/original",
        ),
        ('base = "mmlu/original"\n[protocol]\nshots = -1\n', r"shots is -1; it can't be negative"),
        ("base = 5\n", r'base is 5; write it in quotes, base = "..."'),
        ("name = 5\n", r'name is 5; write it in quotes, name = "..."'),
        (
            f'name = "mmlu/original"\n{BENCHMARK}',
            "mmlu/original belongs .* catalogue",
        ),
    ],
)
def test_a_users_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "mine.toml", text)
    with pytest.raises(ProtocolError, match=message) as caught:
        resolve(path)
    assert path in str(caught.value)


def test_a_users_file_states_what_differs_from_its_base_and_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"can't read .*nowhere\.toml: No such file"):
        resolve(str(tmp_path / "nowhere.toml"))
    (tmp_path / "latin.toml").write_bytes(b'about = "\xe9"')
    with pytest.raises(ProtocolError, match=r"latin\.toml is not UTF-8 text \(byte 9\)"):
        resolve(str(tmp_path / "latin.toml"))
    path = write(
        tmp_path / "mine.toml", 'base = "mmlu/original"\n[protocol]\nshots = 0\nlimit = "-"\n'
    )
    assert resolve(path) == {
        "mine": replace(resolve("mmlu/original")["mmlu/original"], shots=0, limit=None)
    }
    path = write(tmp_path / "same.toml", 'base = "mmlu/harness-v0"\n')
    assert resolve(path) == {"same": next(iter(resolve("mmlu/harness-v0").values()))}
    path = write(tmp_path / "abstract.toml", 'base = "zero-shot-texts"\n')
    assert resolve(path)["abstract"].benchmark == "any"


def test_axes_are_inherited_over_several_files_that_exist_and_form_no_circle() -> None:
    tables = {
        "a": {"protocol": {"benchmark": "quiz", "shots": 1, "header": "a"}},
        "b": {"base": "a", "protocol": {"shots": 2}},
        "c": {"base": "b", "protocol": {"header": ""}},
    }
    assert inherit("c", tables) == Protocol(benchmark="quiz", shots=2)
    tables = {"a": {"base": "b"}, "b": {"base": "c"}, "c": {"base": "b"}, "d": {"base": "e"}}
    with pytest.raises(ProtocolError, match="^a .* b .* c .* b; "):
        inherit("a", tables)
    with pytest.raises(ProtocolError, match="^d: base 'e' .* available: a, b, c, d"):
        inherit("d", tables)


def test_one_name_can_not_stand_for_two_protocols(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one = write(tmp_path / "quiz.toml", BENCHMARK)
    other = write(tmp_path / "a" / "quiz.toml", f"{BENCHMARK}shots = 1\n")
    assert resolve(one, one) == {"quiz": mmlu_protocol()}
    with pytest.raises(ProtocolError, match="gives the name quiz"):
        resolve(one, other)


def test_parse_and_read_axes_name_where_they_read() -> None:
    table = parse(f"{BENCHMARK}shots = 2\n", "here", allowed=["protocol"])
    assert read_axes(table["protocol"], "here").shots == 2
    with pytest.raises(
        ProtocolError, match=r"^here: unknown key 'protocol'; did you mean protocols\?"
    ):
        parse("protocol = 1", "here", allowed=["protocols"])


def test_a_score_stands_before_or_after_changed_axes() -> None:
    before = resolve("mmlu/harness-v0:acc_norm@shots=2,split=validation")
    assert resolve("mmlu/harness-v0@shots=2,split=validation:acc_norm") == before
    (protocol,) = before.values()
    assert (protocol.shots, protocol.split, protocol.score) == (2, "validation", "char_mean_bare")


def test_no_signature_of_the_catalogue_moves(snapshot: SnapshotAssertion) -> None:
    """What a protocol is called and spelled by is its identity: runs, boards and papers name it."""
    ids = {}
    for known in ENTRIES:
        spelled = [signature(protocol) for protocol in known.protocols.values()]
        digests = [short_signature(protocol) for protocol in known.protocols.values()]
        ids[known.name] = (
            f"{sha256(chr(10).join(spelled).encode()).hexdigest()[:12]} {' '.join(digests)}"
        )
    assert ids == snapshot


def test_every_entry_of_the_catalogue_has_its_family(snapshot: SnapshotAssertion) -> None:
    families: dict[str, list[str]] = {}
    for known in ENTRIES:
        if known.name.startswith(
            ("compat/", "encoder-decoder/", "masked-lm/", "mmlu/", "mmlu-flan/", "options/")
        ):
            (name,) = {
                family(protocol) for protocol in known.protocols.values()
            }  # the score changes nothing
            families.setdefault(name, []).append(known.name)
    assert {name: sorted(names) for name, names in families.items()} == snapshot


def test_only_what_is_asked_decides_the_family() -> None:
    """An option in the context is asked for as one in the continuation."""
    assert family(one("winogrande/harness").protocol) == "cloze"
    protocol = one("mmlu/original").protocol
    other = replace(
        protocol, benchmark="own", header="", shots=0, shot_split=None, sampler="none", ties="split"
    )
    assert (family(other), family(replace(other, continuation=" {choice}"))) == (
        "letters",
        "whole answers",
    )
    assert (
        family(replace(other, continuation=" {choice}", question="{question}\nAnswer:")) == "cloze"
    )
    assert (
        family(replace(other, continuation=" {{letter}} {choice}")) == "whole answers"
    )  # braces, no hole
    assert family(replace(other, continuation=" yes")) == "loglikelihood"


@pytest.mark.parametrize(
    ("reading", "name"), [("loglikelihood", RENDERED), ("embedding", "embeddings")]
)
def test_requests_from_elsewhere_do_not_show_what_they_ask(reading: str, name: str) -> None:
    axes = {**NEUTRAL, "reading": reading, "score": READINGS[reading].scores[0]}
    assert family(Protocol(benchmark="own", requests="0" * 64, **axes)) == name


def test_olmes_asks_ten_benchmarks_in_two_formulations() -> None:
    named = list(resolve("olmes").items())
    pairs = list(zip(named[::2], named[1::2], strict=True))
    assert len(pairs) == len({protocol.benchmark for _, protocol in named}) == 10
    for (mcf, listed), (cf, plain) in pairs:
        assert mcf == f"{listed.benchmark}/olmes-mcf"
        assert cf.partition(":")[0] == f"{plain.benchmark}/olmes-cf"
        assert "{options}" in listed.question
        assert "{options}" not in plain.question
        assert listed.split == plain.split
        averaged = ("test", "macro" if plain.benchmark == "mmlu" else "micro")
        assert (listed.split, plain.aggregation) in {averaged, ("validation", "micro")}
        assert benchmark(plain.benchmark).files.keys() >= {plain.split}


def test_texts_count_by_the_score_that_olmes_takes_for_the_task() -> None:
    scores = dict.fromkeys(("arc-challenge", "commonsenseqa", "openbookqa"), "acc_uncond") | {
        "boolq": "acc_raw"
    }
    scores |= dict.fromkeys(("arc-easy", "hellaswag", "piqa", "siqa"), "acc_per_char")
    for task, score in scores.items():
        assert f"{task}/olmes-cf:{score}" in resolve("olmes")
        assert next(iter(resolve(f"{task}/olmes-cf"))) == f"{task}/olmes-cf:{score}"


def test_harness_and_olmes_stand_side_by_side_on_the_split_that_is_there(tmp_path: Path) -> None:
    """Examples of one set as the questions of another: ARC-Challenge's shots under ARC-Easy's protocols."""
    items = tuple(
        Item(each.id, each.question, each.choices, each.gold)
        for each in curated("olmes/arc-challenge")
    )
    data = Dataset("arc", {"validation": items})
    with pytest.warns(UserWarning, match="arc-easy/harness:acc@split=validation"):
        evaluate(
            model=HashModel(), data=data, protocols=["arc-easy/harness:acc"], out=tmp_path / "test"
        )
    named = [
        f"{name}@split=validation"
        for name in ("arc-easy/harness:acc", "arc-easy/olmes-mcf", "arc-easy/olmes-cf")
    ]
    assert (
        len(evaluate(model=HashModel(), data=data, protocols=named, out=tmp_path / "run").rows())
        == 7
    )


SIZES = [
    ("tides", 2, 1),
    ("trees", 5, 1),
    ("trees", 4, 2),
    ("trees", 4, 1),
]  # subject, choices, right ones

ITEMS = [
    Item(f"{n}", "?", [f"{n} {choice}" for choice in range(size)], tuple(range(right)), subject)
    for n, (subject, size, right) in enumerate(SIZES)
]
TREES = (1 / 5 + 2 / 4 + 1 / 4) / 3
EXPECTED = {
    None: {"all": (1 / 2 + 1 / 5 + 2 / 4 + 1 / 4) / 4},
    "macro": {"all": (1 / 2 + TREES) / 2},
}
EXPECTED |= {"subjects": {"tides": 1 / 2, "trees": TREES}}


def test_chance_is_averaged_as_the_value_is(tmp_path: Path) -> None:
    data = Dataset("quiz", {"test": ITEMS})
    run = evaluate(
        model="fake:hash", data=data, protocols=["options/cloze:sum"], out=tmp_path / "run"
    )
    for by, expected in EXPECTED.items():
        assert {row.identity.subject: row.chance for row in run.rows(by=by)} == pytest.approx(
            expected
        )
