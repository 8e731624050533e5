"""The catalogue: complete, cited, and one place where names become protocols."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise.data.benchmarks import Benchmark, benchmarks
from choicewise.errors import ProtocolError
from choicewise.protocols.catalogue import SCORES, Entry, entries, entry, inherit, parse, read_axes, resolve
from choicewise.protocols.protocol import Protocol, parse_signature, short_signature, signature
from choicewise.protocols.readings import SCORES as ALL_SCORES
from tests.helpers.protocols import mmlu_protocol

ENTRIES = entries()


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_every_entry_is_complete_and_cited(known: Entry) -> None:
    assert known.title
    assert re.search(r"\d{4}|EleutherAI", known.citation)
    commit, release = r"https://github\.com/\S+/[0-9a-f]{8,40}(/\S+)?", r"https://pypi\.org/project/\S+/[0-9.]+/"
    paper = r"https://arxiv\.org/abs/\d{4}\.\d{5}"  # of ways that a paper words and no code does
    assert re.fullmatch(f"{commit}|{release}|{paper}", known.source)
    assert known.about.endswith(".")
    for name, protocol in known.protocols.items():
        assert parse_signature(signature(protocol)) == protocol
        assert resolve(name) == {name: protocol}
        assert resolve(signature(protocol)) == {name: protocol}
    assert len(set(known.protocols.values())) == len(known.protocols)
    assert resolve(known.name) == known.protocols
    assert entry(known.name) is known
    assert set(known.published.values()) <= set(known.protocols)


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_an_entry_is_named_like_its_file(known: Entry) -> None:
    assert all(name.partition(":")[0] == known.name for name in known.protocols)


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_an_entry_is_about_a_benchmark_that_is_declared(known: Entry) -> None:
    """One of the name of its family, but for families of several benchmarks."""
    family = known.name.partition("/")[0]
    named = {protocol.benchmark for protocol in known.protocols.values()}
    assert len(named) == 1
    assert named <= {family} if family in benchmarks() else named <= {"any", family, *benchmarks()}


@pytest.mark.parametrize("known", benchmarks().values(), ids=lambda known: known.name)
def test_every_benchmark_is_complete_and_cited(known: Benchmark) -> None:
    assert known.title
    assert re.search(r"\d{4}", known.citation)
    assert known.source.startswith("https://")
    assert known.about.endswith(".")
    assert known.repository.count("/") == 1
    assert known.files
    assert all(path.rpartition(".")[2] in ("parquet", "jsonl", "json", "csv") for path in known.files.values())


@pytest.mark.parametrize("known", ENTRIES, ids=lambda known: known.name)
def test_an_entry_asks_of_splits_that_its_benchmark_has(known: Entry) -> None:
    protocol = next(iter(known.protocols.values()))
    if protocol.benchmark in benchmarks():
        splits = set(benchmarks()[protocol.benchmark].files)
        assert protocol.split is None or protocol.split in splits
        assert not protocol.shots or protocol.sampler == "curated" or protocol.shot_split in splits


TWELVE = (
    *("arc-easy", "arc-challenge", "hellaswag", "openbookqa", "piqa", "winogrande"),
    *("commonsenseqa", "siqa", "copa", "boolq", "race", "sciq"),
)


def test_twelve_benchmarks_have_todays_harness_and_what_each_was_published_with() -> None:
    names = {known.name for known in ENTRIES}
    assert {f"{name}/harness" for name in TWELVE} <= names
    assert {f"{name}/harness-v1" for name in TWELVE if name not in ("commonsenseqa", "siqa")} <= names
    eight = ("arc-easy", "arc-challenge", "hellaswag", "openbookqa", "piqa", "winogrande", "copa", "boolq")
    assert {f"{name}/gpt3" for name in eight} <= names
    assert {"hellaswag/helm", "openbookqa/helm", "commonsenseqa/helm", "arc-challenge/meta-llama3"} <= names


@pytest.mark.parametrize(
    ("name", "headline", "axes"),
    [
        ("arc-challenge/harness", "arc-challenge/harness:acc", "test 0 harness 1234 cut-start default moved-space"),
        (
            "arc-challenge/harness-v1",
            "arc-challenge/harness-v1:acc_norm",
            "test 25 harness-v0-train 42 cut-start none moved-space",
        ),
        (
            "hellaswag/harness-v1",
            "hellaswag/harness-v1:acc_norm",
            "validation 10 harness-v0-train 42 cut-start none moved-space",
        ),
        (
            "winogrande/harness-v1",
            "winogrande/harness-v1",
            "validation 5 harness-v0-train 42 cut-start none moved-space",
        ),
        ("hellaswag/harness", "hellaswag/harness:acc", "validation 0 harness-spare 1234 cut-start default moved-space"),
        ("hellaswag/helm", "hellaswag/helm", "validation 0 none None refuse default joint"),
        ("openbookqa/gpt3", "openbookqa/gpt3", "test 100 harness 0 drop-last-shot default joint"),
    ],
)
def test_how_the_twelve_are_asked(name: str, headline: str, axes: str) -> None:
    first, protocol = next(iter(resolve(name).items()))
    assert first == headline
    shown = ("split", "shots", "sampler", "seed", "fit", "bos", "boundary")
    assert " ".join(str(getattr(protocol, axis)) for axis in shown) == axes


def test_the_harness_norm_and_helms_shared_credit() -> None:
    norm = resolve("hellaswag/harness-v1:acc_norm")["hellaswag/harness-v1:acc_norm"]
    helm = resolve("openbookqa/helm")["openbookqa/helm"]
    assert (norm.score, norm.ties) == ("char_mean_bare", "first")
    assert (helm.score, helm.null, helm.ties) == ("pmi", "Answer:", "split")


def test_catalogue_holds_the_published_ways_and_no_protocol_twice() -> None:
    assert {known.name for known in ENTRIES} >= {
        *(
            "mmlu/original",
            "mmlu/original-pr13",
            "mmlu/helm",
            "mmlu/harness-v0",
            "mmlu/harness-v1",
            "mmlu/harness-v0.4",
        ),
        *("mmlu/harness-v0.4-early", "mmlu/olmes-mcf", "mmlu/olmes-cf", "mmlu/cloze", "mmlu/letter-text"),
    }
    every = [protocol for known in ENTRIES for protocol in known.protocols.values()]
    assert len(set(every)) == len(every)
    assert set(resolve("mmlu")) == {name for known in ENTRIES for name in known.protocols if name.startswith("mmlu/")}


def test_a_beginning_of_names_stands_for_them_all() -> None:
    quoted = ("mean-forward", "mean-generate", "mean-masked", "sum-forward", "sum-surprisal")
    assert set(resolve("options/quoted")) == {f"options/quoted-{name}" for name in quoted}
    assert set(resolve("options")) > set(resolve("options/quoted"))
    assert set(resolve("mmlu/harness-v0.4")) == {"mmlu/harness-v0.4"}


def test_the_cloze_entry_has_every_score() -> None:
    protocols = resolve("options/cloze")
    assert set(protocols) == {f"options/cloze:{score}" for score in ALL_SCORES}
    assert all(protocol.score == name.partition(":")[2] for name, protocol in protocols.items())
    assert len({protocol.prompt_digest for protocol in protocols.values()}) == 1


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("original", "drop-last-shot 2048 default joint sum top100=-100 micro"),
        ("original-pr13", "drop-last-shot 2048 default last-token sum keep micro"),
        ("helm", "drop-last-shot-then-cut-end None default joint none keep macro"),
        ("harness-v0", "cut-start None none separate char_mean_bare keep macro"),
        ("harness-v1", "cut-start None none moved-space sum keep macro"),
        ("harness-v0.4", "cut-start None default moved-space sum keep micro"),
        ("harness-v0.4-early", "cut-start None none moved-space sum keep micro"),
        ("olmes-mcf", "cut-start 2048 none joint sum keep macro"),
        ("olmes-cf", "cut-start 2048 none joint char_mean keep macro"),
        ("cloze", "cut-start None default joint char_mean_bare keep macro"),
        ("letter-text", "drop-last-shot 2048 default joint token_mean keep micro"),
    ],
)
def test_what_no_prompt_shows_is_as_published(name: str, axes: str) -> None:
    headline = next(iter(resolve(f"mmlu/{name}").values()))
    shown = ("fit", "limit", "bos", "boundary", "score", "outside", "aggregation")
    assert " ".join(str(getattr(headline, axis)) for axis in shown) == axes
    assert headline.ties == ("none" if name == "helm" else "first")
    assert headline.shots == (0 if name == "cloze" else 5)


def test_an_entry_that_scores_texts_has_every_score_headline_first() -> None:
    names = list(resolve("mmlu/harness-v0"))
    assert names[0] == "mmlu/harness-v0:char_mean_bare"
    assert sorted(names) == sorted(f"mmlu/harness-v0:{score}" for score in SCORES)
    assert len({protocol.prompt_digest for protocol in resolve("mmlu/harness-v0").values()}) == 1
    assert next(iter(resolve("mmlu/olmes-cf"))) == "mmlu/olmes-cf:char_mean"


@pytest.mark.parametrize(
    ("score", "null"), [("empty", ""), ("answer", "Answer:"), ("answer-space", "Answer: "), ("colon", ":")]
)
def test_null_contexts_are_four_protocols(score: str, null: str) -> None:
    (protocol,) = resolve(f"mmlu/harness-v0:pmi-{score}").values()
    assert (protocol.score, protocol.null) == ("pmi", null)


@pytest.mark.parametrize(
    ("published", "name"),
    [
        ("mmlu/harness-v0:acc_norm", "mmlu/harness-v0:char_mean_bare"),
        ("mmlu/harness-v0:acc", "mmlu/harness-v0:sum"),
        ("mmlu/olmes-cf:acc_uncond", "mmlu/olmes-cf:pmi-answer"),
    ],
)
def test_published_names_of_scores_become_ours(published: str, name: str) -> None:
    assert list(resolve(published)) == [name]
    assert name in entry(published).protocols


def test_resolve_takes_several_selectors_and_keeps_their_order() -> None:
    names = list(resolve("mmlu/original", "mmlu/helm", "mmlu/harness-v0:acc", "mmlu/original"))
    assert names == ["mmlu/original", "mmlu/helm", "mmlu/harness-v0:sum"]


def test_a_signature_nobody_published_is_named_by_its_digest() -> None:
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
    with pytest.raises(ProtocolError, match=f"no protocol is called '{selector}'; did you mean .*{near}"):
        resolve(selector)


@pytest.mark.parametrize(
    ("selector", "known"),
    [
        ("bbh/leaderboard", "bbh/harness"),
        ("bbh/leaderboard:acc_norm", "bbh/harness"),
        ("bbh/leaderboard@shots=0", "bbh/harness"),
        ("cmmlu/llama", "cmmlu/harness and cmmlu/original"),
        ("race/nothing-so-named", "race/harness-v1, race/harness and race/lighteval"),
    ],
)
def test_a_variant_that_a_benchmark_lacks_comes_with_those_that_it_has(selector: str, known: str) -> None:
    with pytest.raises(ProtocolError, match=rf"no protocol is called '.*'; its family has {known} \("):
        resolve(selector)


@pytest.mark.parametrize("name", ["musr", "bbh", "mmlu-pro"])
def test_tasks_that_the_harness_has_for_the_leaderboard_are_named(name: str) -> None:
    assert (
        f"The task{'s' * (name != 'mmlu-pro')} leaderboard_{name.replace('-', '_')}" in entry(f"{name}/harness").about
    )


def test_an_unknown_name_without_a_near_one_comes_with_what_to_do() -> None:
    with pytest.raises(
        ProtocolError,
        match=r"'m'; known are .*`choicewise protocols` lists them all; a file's name ends in \.toml",
    ):
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
    assert resolve(write(tmp_path / "other.toml", f'name = "our quiz"\n{BENCHMARK}')) == {"our quiz": mmlu_protocol()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[protocol\n", r"is not valid TOML: .*line 1"),
        (f"protocol = {'[' * 5000}", r"is not valid TOML: it is nested too deeply"),
        ("[protocol]\nshot = 5\n", r"unknown key 'shot'; did you mean shots\?"),
        ("[protocol]\nzzz = 5\n", r"unknown key 'zzz'; known are benchmark, split"),
        ("[protocols]\nshots = 5\n", r"unknown key 'protocols'; did you mean protocol\?"),
        (f'{BENCHMARK}shots = "5"\n', r"axis shots is '5'; it must be int"),
        (f'{BENCHMARK}header = ["x"]\n', r"axis header is \['x'\]; it must be str"),
        (f'{BENCHMARK}score = "median"\n', r"axis score is 'median'; it must be one of sum"),
        (f'{BENCHMARK}score = "pmi"\n', r"score pmi with null None"),
        ("protocol = 5\n", r"protocol is 5; it must be a table, \[protocol\]"),
        ("", r'no benchmark; state benchmark = "\.\.\." under \[protocol\], or a base = "mmlu/original"'),
        ('base = "mmlu/orignal"\n', r"base 'mmlu/orignal' is not in the catalogue; did you mean mmlu/original"),
        ('base = "mmlu/original"\n[protocol]\nshots = -1\n', r"shots is -1; it can't be negative"),
        ("base = 5\n", r'base is 5; write it in quotes, base = "..."'),
        ("name = 5\n", r'name is 5; write it in quotes, name = "..."'),
        (f'name = "mmlu/original"\n{BENCHMARK}', r"the name mmlu/original belongs to the catalogue"),
    ],
)
def test_a_users_file_says_what_is_wrong_and_where(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "mine.toml", text)
    with pytest.raises(ProtocolError, match=message) as caught:
        resolve(path)
    assert path in str(caught.value)


def test_files_that_cant_be_read_say_so(tmp_path: Path) -> None:
    with pytest.raises(ProtocolError, match=r"nowhere\.toml can't be read: No such file"):
        resolve(str(tmp_path / "nowhere.toml"))
    (tmp_path / "latin.toml").write_bytes(b'about = "\xe9"')
    with pytest.raises(ProtocolError, match=r"latin\.toml is not UTF-8 text \(byte 9\)"):
        resolve(str(tmp_path / "latin.toml"))


def test_a_users_file_states_what_differs_from_its_base(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.toml", 'base = "mmlu/original"\n[protocol]\nshots = 0\nlimit = "-"\n')
    assert resolve(path) == {"mine": replace(resolve("mmlu/original")["mmlu/original"], shots=0, limit=None)}
    path = write(tmp_path / "same.toml", 'base = "mmlu/harness-v0"\n')
    assert resolve(path) == {"same": next(iter(resolve("mmlu/harness-v0").values()))}
    path = write(tmp_path / "abstract.toml", 'base = "zero-shot-texts"\n')
    assert resolve(path)["abstract"].benchmark == "any"


def test_axes_are_inherited_over_several_files() -> None:
    tables = {
        "a": {"protocol": {"benchmark": "quiz", "shots": 1, "header": "a"}},
        "b": {"base": "a", "protocol": {"shots": 2}},
        "c": {"base": "b", "protocol": {"header": ""}},
    }
    assert inherit("c", tables) == Protocol(benchmark="quiz", shots=2)


def test_bases_must_exist_and_not_form_a_circle() -> None:
    tables = {"a": {"base": "b"}, "b": {"base": "c"}, "c": {"base": "b"}, "d": {"base": "e"}}
    with pytest.raises(ProtocolError, match="^a inherits from b inherits from c inherits from b; a base must not"):
        inherit("a", tables)
    with pytest.raises(ProtocolError, match="^d: base 'e' is not in the catalogue; known are a, b, c, d"):
        inherit("d", tables)


def test_one_name_can_not_stand_for_two_protocols(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    one, other = (
        write(tmp_path / "quiz.toml", BENCHMARK),
        write(tmp_path / "a" / "quiz.toml", f"{BENCHMARK}shots = 1\n"),
    )
    assert resolve(one, one) == {"quiz": mmlu_protocol()}
    with pytest.raises(ProtocolError, match="gives the name quiz to another protocol"):
        resolve(one, other)


def test_parse_and_read_axes_name_where_they_read() -> None:
    table = parse(f"{BENCHMARK}shots = 2\n", "here", allowed=["protocol"])
    assert read_axes(table["protocol"], "here").shots == 2
    with pytest.raises(ProtocolError, match=r"^here: unknown key 'protocol'; did you mean protocols\?"):
        parse("protocol = 1", "here", allowed=["protocols"])


def test_a_score_stands_before_or_after_changed_axes() -> None:
    before = resolve("mmlu/harness-v0:acc_norm@shots=2,split=validation")
    assert resolve("mmlu/harness-v0@shots=2,split=validation:acc_norm") == before
    (protocol,) = before.values()
    assert (protocol.shots, protocol.split, protocol.score) == (2, "validation", "char_mean_bare")
