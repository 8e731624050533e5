"""What can't be asked here, and what of a task file would run code: said with its place, before it runs."""

import json
import os
import re
from pathlib import Path

import pytest

from choicewise.errors import ChoicewiseError, DataError, ProtocolError, UsageError
from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks
from choicewise.extensions.interop.harness_tasks.load import TaskNames, TaskTemplates
from choicewise.results.run import open_run
from tests.helpers.commands import choicewise as command
from tests.peers.harness_compared import compare, texts_by_harness, write_task
from tests.peers.interop.test_harness_tasks import METRICS, PLAIN, SPLITS, rows

MARK = "the code of the task ran"

CODE = f"""from pathlib import Path
Path(__file__).with_name("ran").write_text("{MARK}")
def asked(doc):
    return "Which? " + doc["question"]
def half(rows):
    return rows.select(range(0, len(rows), 2))
def credit(doc, results):
    return {{"acc": float(results[0][0] > results[1][0])}}
def odd(doc, results):
    return {{"acc": results[0][0] * 0.01}}
"""


def with_code(folder: Path, text: str) -> Path:
    (folder / "own.py").write_text(CODE)
    return write_task(folder, "roads", SPLITS, text)


CALLS = {
    "doc_to_text": ("doc_to_text: !function own.asked\n", "doc_to_text: own.asked"),
    "process_docs": ("process_docs: !function own.half\n", "process_docs: own.half"),
    "a list": (
        "fewshot_config:\n  samples: !function own.half\n",
        "fewshot_config.samples: own.half",
    ),
    "a metric": (
        "metric_list:\n  - metric: !function own.credit\n",
        r"metric_list\[0\].metric: own.credit",
    ),
    "a class": ("class: !function own.asked\n", "class: own.asked"),
    "an unknown key": ("metadata: {x: !function own.asked}\n", "metadata.x: own.asked"),
}


@pytest.mark.parametrize("name", CALLS)
def test_code_is_named_with_its_place_and_does_not_run(name: str, tmp_path: Path) -> None:
    text, says = CALLS[name]
    path = with_code(tmp_path, PLAIN.replace(METRICS, "") + text)
    line = 1 + next(n for n, each in enumerate(path.read_text().split("\n")) if "!function" in each)
    with pytest.raises(
        ProtocolError, match=f"{re.escape(str(path))}, line {line}: {says}"
    ) as error:
        load_harness_tasks(f"lm-eval:{path}")
    assert "allow task code" in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_code_in_an_included_file_counts_where_a_key_replaces_it(tmp_path: Path) -> None:
    path = with_code(tmp_path, PLAIN + "include: base\n")
    (tmp_path / "base").write_text("doc_to_text: !function own.asked\n")
    with pytest.raises(ProtocolError, match="base, line 1: doc_to_text: own.asked"):
        load_harness_tasks(f"lm-eval:{path}")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "key", ["doc_to_text: !function own.asked\n", "process_docs: !function own.half\n"]
)
@pytest.mark.parametrize("shots", [0, 2])
def test_code_that_is_allowed(key: str, shots: int, tmp_path: Path) -> None:
    text = PLAIN + key
    if "doc_to_text" in key:
        text = (
            "\n".join(line for line in PLAIN.split("\n") if not line.startswith("doc_to_text"))
            + key
        )
    task = compare(str(with_code(tmp_path, text)), tmp_path / "run", shots=shots, allow_code=True)
    assert ((tmp_path / "ran").read_text(), bool(task.rendered)) == (MARK, "doc_to_text" in key)


def test_a_metric_by_code_is_recognised_or_not_computed(tmp_path: Path) -> None:
    text = PLAIN.replace("{{options}}", "{{options[:2]}}").replace("{{label}}", "{{label % 2}}")
    path = with_code(tmp_path, text + "process_results: !function own.credit\n")
    (task,) = load_harness_tasks(f"lm-eval:{path}", allow_code=True)
    assert {item.gold for item in task.data.splits["test"]} == {(0,)}
    assert any("acc_norm is not computed" in note for note in task.notes)
    compare(str(path), tmp_path / "run", allow_code=True)
    path = with_code(tmp_path, PLAIN + "process_results: !function own.odd\n")
    (task,) = load_harness_tasks(f"lm-eval:{path}", allow_code=True)
    assert list(task.protocols) == ["lm-eval:roads:sum"]
    assert any("sum is computed instead" in note for note in task.notes)
    with pytest.raises(ProtocolError, match="metric acc is not"):
        load_harness_tasks(f"lm-eval:{path}:acc", allow_code=True)


CHOICE = "task: a\noutput_type: multiple_choice\n"
WRONG = {
    "a circle of includes": ("task: a\ninclude: b\n", "a circle"),
    "an include of itself": ("task: a\ninclude: a.yaml\n", "a circle"),
    "an include that is not there": (
        "task: a\n\ninclude: c\n",
        "a.yaml, line 3: include names c, and .* is no file",
    ),
    "an include that is no name": ("task: a\ninclude: 3\n", "line 2: include is 3"),
    "no YAML": ("task: a\nx: [1, 2\ny: 3\n", "a.yaml, line 3: not a valid"),
    "another tag": (
        "task: a\nx: !!python/object/apply:os.getcwd []\n",
        "line 2: not a valid",
    ),
    "a list": ("- task: a\n", "holds no keys"),
    "nothing": ("", "holds no keys"),
    "no name": ("output_type: multiple_choice\n", "neither `task: NAME` nor `group: NAME`"),
    "half a character": ("task: a\nx: \udcff\n", "is not UTF-8 text"),
    "deep": (
        "task: a\nx: " + "[" * 5000 + "]" * 5000,
        "not a valid task",
    ),
    "unknown keys": (f"{CHOICE}doc_to_txt: x\n", "line 3: doc_to_txt is not a key.*doc_to_text"),
    "unknown keys of shots": (
        f"{CHOICE}fewshot_config: {{smpler: first_n}}\n",
        "line 3: smpler is not .* fewshot_config.*sampler",
    ),
    "a number that is none": (f"{CHOICE}num_fewshot: many\n", "line 3: num_fewshot is 'many'"),
    "pictures": (f"{CHOICE}doc_to_image: image\n", "line 3: doc_to_image: tasks with pictures"),
    "prompts of promptsource": (f"{CHOICE}use_prompt: x\n", "line 3: use_prompt"),
    "filters": (
        f"{CHOICE}filter_list: [{{name: x, filter: [{{function: regex}}]}}]\n",
        "line 3: filter .* changes what is scored",
    ),
    "generate_until": (
        "task: a\noutput_type: generate_until\n",
        "output type generate_until",
    ),
    "loglikelihood_rolling": (
        "task: a\noutput_type: loglikelihood_rolling\n",
        "output type loglikelihood_rolling",
    ),
    "no output type": ("task: a\n", "generate_until; .*it names none"),
}
OTHER_CODE = {
    "dataset_kwargs: {trust_remote_code: true}": "dataset_kwargs.trust_remote_code",
    **{
        f"dataset_path: {path}": f"dataset_path: {path}"
        for path in ("pandas", "/tmp/x.py", "webdataset")
    },
    "metric_list: [{metric: acc, hf_evaluate: true}]": "metric_list: acc: a script",
    "metric_list: [{metric: /tmp/x.py}]": "metric_list: /tmp/x.py",
}
"""Code that no function names."""

WRONG |= {
    key: (f"{CHOICE}dataset_path: json\ntest_split: test\n{key}\n", says)
    for key, says in OTHER_CODE.items()
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_task_here(name: str, tmp_path: Path) -> None:
    text, says = WRONG[name]
    (tmp_path / "a.yaml").write_bytes(text.encode(errors="surrogateescape"))
    (tmp_path / "b").write_text("include: a.yaml\n")
    with pytest.raises(ProtocolError, match=says):
        load_harness_tasks(f"lm-eval:{tmp_path / 'a.yaml'}")


def test_names_that_are_none_or_of_a_broken_file(tmp_path: Path) -> None:
    path, none = (write_task(tmp_path, f"t{n}", SPLITS, f"{PLAIN}num_fewshot: {n}") for n in (1, 0))
    for named, says in {
        "arc_eazy": "'arc_eazy'; did you mean arc_easy",
        str(tmp_path / "gone.yaml"): "gone.yaml is not",
        "gsm8k": "output type generate_until",
        f"{path}:accuracy": "has no metric 'accuracy'; ",
        f"{none}@shots=3": "num_fewshot: 0, ",
    }.items():
        with pytest.raises(ProtocolError, match=says):
            load_harness_tasks(f"lm-eval:{named}")
    with pytest.raises(UsageError, match="is not a folder"):
        load_harness_tasks("lm-eval:arc_easy", include_path=[tmp_path / "gone"])
    (tmp_path / "a.yaml").write_text("task: my_own\ninclude: gone\n")
    with pytest.raises(ProtocolError, match="task my_own: .*a.yaml, line 2: include names gone"):
        load_harness_tasks("lm-eval:my_own", include_path=[tmp_path])


def test_data_that_are_not_there(tmp_path: Path) -> None:
    path, files = tmp_path / "a.yaml", "json\ndataset_kwargs: {data_files: {test: FILE}}"
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": \n')
    for data, says in {
        "some/where": "task a: .* some/where, .*network.*data_files",
        files.replace("FILE", "gone.jsonl"): "its data, json, ",
        files.replace("FILE", f"{tmp_path}/x.jsonl"): "data can't be read",
    }.items():
        keys = "test_split: test\ndoc_to_text: q\ndoc_to_target: t\ndoc_to_choice: c\n"
        path.write_text(f"{CHOICE}dataset_path: {data}\n{keys}")
        with pytest.raises(DataError, match=says):
            load_harness_tasks(f"lm-eval:{path}")


ATTACKS = {
    "Python's insides": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a function's": "{{ lipsum.__globals__['os'].system('touch ran') }}",
    "the filter's": "{{ question|attr('__class__') }}",
    "memory": "{{ 'a' * 10 ** 10 }}",
    "memory step by step": "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}{{ n.x }}",
    "a wide number": "{{ '%9999999999d' % 1 }}",
    "a long text": "{{ 'a' * 20000000 }}",
    "time": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a slow pattern": "{{ ('a' * 40 ~ 'b')|regex_replace('(a+)+$', '') }}",
    "an unknown field": "{{ gone }}",
    "no template": "{{ question",
}


@pytest.mark.parametrize(
    "key", ["doc_to_text", "doc_to_choice", "doc_to_target", "description", "gen_prefix"]
)
@pytest.mark.parametrize("name", ["Python's insides", "memory", "a long text"])
def test_a_template_that_attacks_is_an_error(name: str, key: str, tmp_path: Path) -> None:
    own = "".join(f"{line}\n" for line in PLAIN.split("\n") if not line.startswith(key))
    path = write_task(
        tmp_path, "roads", {"test": rows(3), "train": rows(3)}, own + f'{key}: "{ATTACKS[name]}"\n'
    )
    with pytest.raises(ChoicewiseError, match="template of the task"):
        load_harness_tasks(f"lm-eval:{path}")


@pytest.mark.parametrize("name", ATTACKS)
def test_templates_are_bounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    templates = TaskTemplates()
    with pytest.raises(ProtocolError, match="template of the task"):
        templates.fill(ATTACKS[name], {"question": "why"})
    assert (os.listdir(tmp_path), templates.fill("{{ question }}", {"question": "why"})) == (
        [],
        "why",
    )


def test_templates_fill_as_the_harness_does_whose_environment_stays(tmp_path: Path) -> None:
    from lm_eval import utils

    doc = {
        "a": 1,
        "b": None,
        "c": [1, "x"],
        "d": {"text": ["é\n", "{{a}}"], "n": 1.5},
        "e": True,
        "f": "  x \r\n",
    }
    texts = [
        "{{a}}",
        "{{b}} {{e}}",
        "{{c}}",
        "{{d.text}}",
        "{{d['n']}}",
        "{{f}}\n",
        "{{f.strip()|upper}}\n\n",
        "{{d}}",
    ]
    texts += [
        "{% set x = [] %}{{ x.append(1) or '' }}{{x}}",
        "{{'aXb'|regex_replace('[A-Z]', '-')}}",
        "a\r\nb",
    ]
    texts += ["{{c|join('-')}}"]
    templates = TaskTemplates()
    for text in texts:
        assert templates.fill(text, doc) == utils.apply_template(text, doc)
    before = utils.env
    load_harness_tasks(f"lm-eval:{write_task(tmp_path, 'roads', SPLITS, PLAIN)}")
    assert utils.env is before


def test_code_of_a_shipped_task_runs_and_that_of_a_file_over_it_does_not(tmp_path: Path) -> None:
    """What the installed harness comes with is trusted; a group of somebody's folder may say how it is asked."""
    (tmp_path / "own.py").write_text(CODE)
    group = tmp_path / "group.yaml"
    group.write_text(
        "group: ends\ntask:\n  - task: hellaswag\n    process_docs: !function own.half\n"
    )
    with pytest.raises(
        ProtocolError, match=r"group.yaml, line 4: task\[0\].process_docs: own.half"
    ) as error:
        load_harness_tasks("lm-eval:ends", include_path=[tmp_path])
    assert str(error.value).count("line") == 1
    group.write_text("group: ends\ntask: [{task: hellaswag, dataset_path: pandas}]\n")
    with pytest.raises(ProtocolError, match="group.yaml, line 2: dataset_path: pandas"):
        load_harness_tasks("lm-eval:ends", include_path=[tmp_path])
    assert not (tmp_path / "ran").exists()
    tree = TaskNames([tmp_path]).tree("hellaswag")
    assert (tree.code, [leaf.name for leaf in tree.leaves]) == ((), ["hellaswag"])


def test_a_file_that_holds_up_whoever_reads_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("task: good\noutput_type: multiple_choice\n")
    (tmp_path / "broken.yaml").write_text("task: [\n")
    (tmp_path / "inner").write_text("x: " + "[" * 100_000 + "]" * 100_000)
    for text, says in (
        ("include: inner", "inner has more than 200 levels"),
        ("include: pipe", "pipe is not a"),
    ):
        os.mkfifo(tmp_path / "pipe") if "pipe" in text else None
        (tmp_path / "other.yaml").write_text(f"task: other\n{text}\n")
        with pytest.raises(ProtocolError, match=says):
            load_harness_tasks("lm-eval:good", include_path=[tmp_path])
    (tmp_path / "other.yaml").unlink()
    assert [leaf.name for leaf in TaskNames([tmp_path]).tree("good").leaves] == ["good"]


FAKE = ("--model", "fake:hash")


def kept(folder: Path, name: str) -> Path:
    """A task whose requests are kept as rendered."""
    return write_task(folder, name, SPLITS, PLAIN.replace("{{question}}", "{{- question -}}"))


def test_one_task_is_one_run_that_goes_on(tmp_path: Path) -> None:
    path, out = write_task(tmp_path, "roads", SPLITS, PLAIN), tmp_path / "run"
    line = ("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", out, "--json")
    first = command(*line, code=0)
    names = [row["protocol"] for row in json.loads(first.stdout)]
    assert names == ["lm-eval:roads:acc", "lm-eval:roads:acc_norm"]
    manifest = open_run(out).manifest
    assert manifest.dataset.read_with.startswith("lm-eval 0.4.13: task roads, version 2.5")
    blocks = manifest.blocks
    command(*line[:4], f"lm-eval:{path}:acc_bytes@shots=2", *line[5:], code=0)
    assert (open_run(out).manifest.blocks[: len(blocks)], command(*line).stdout) == (
        blocks,
        first.stdout,
    )


def test_several_tasks_in_a_line_are_several_runs(tmp_path: Path) -> None:
    write_task(tmp_path, "roads", SPLITS, PLAIN)
    kept(tmp_path, "lanes")
    protocols = (
        "--protocol",
        "lm-eval:roads",
        "--protocol",
        "lm-eval:lanes:acc",
        "--include-path",
        tmp_path,
    )
    line = ("run", *FAKE, *protocols, "--out", tmp_path / "all", "--limit", 5)
    command(*line, code=0)
    runs = sorted(path.parent for path in (tmp_path / "all").glob("*/*/manifest.json"))
    assert [open_run(run).manifest.dataset.name for run in runs] == [
        "lm-eval:lanes",
        "lm-eval:roads",
    ]
    assert open_run(runs[0]).manifest.job["include_path"] == [str(tmp_path)]
    times = [(run / "manifest.json").stat().st_mtime_ns for run in runs]
    command(*line, code=0)
    assert [(run / "manifest.json").stat().st_mtime_ns for run in runs] == times


def test_a_sweep_asks_tasks_beside_benchmarks(tmp_path: Path) -> None:
    write_task(tmp_path, "roads", SPLITS, PLAIN)
    plan = tmp_path / "plan.toml"
    plan.write_text('models = ["fake:hash", "fake:oracle"]\nprotocols = ["lm-eval:roads:acc"]\n')
    command("sweep", plan, "--include-path", tmp_path, "--out", tmp_path / "all", "--json", code=0)
    runs = [open_run(path.parent) for path in (tmp_path / "all").glob("*/*/manifest.json")]
    assert sorted(run.manifest.model.name for run in runs) == ["fake:hash", "fake:oracle"]
    assert all(list(run.protocols) == ["lm-eval:roads:acc"] for run in runs)


@pytest.mark.parametrize("shots", ["", "@shots=2"])
def test_prompts_are_those_of_the_harness(shots: str, tmp_path: Path) -> None:
    path = kept(tmp_path, "lanes")
    done = command("prompts", "--protocol", f"lm-eval:{path}:acc{shots}", code=0)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    pairs = [(line["context"], text) for line in lines for text in line["continuations"]]
    assert pairs == texts_by_harness(str(path), shots=int(shots[-1]) if shots else None)["lanes"]
    assert "lm-eval:lanes: its requests" in done.stderr


def test_every_command_shows_such_a_run(tmp_path: Path) -> None:
    path, out = kept(tmp_path, "lanes"), tmp_path / "run"
    command("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", out, code=0)
    for words in (
        ("report", out),
        ("explain", out, "--item", "3"),
        ("compare", out, out),
        ("page", out, "--out", tmp_path / "page.html"),
        ("ladder", "lm-eval:lanes:acc", "lm-eval:lanes:acc_norm", out),
    ):
        command(*words, code=0)
    assert "read with lm-eval 0.4.13" in (tmp_path / "page.html").read_text()


def test_options_that_do_nothing_are_refused(tmp_path: Path) -> None:
    path = write_task(tmp_path, "roads", {"train": rows(3), "test": rows(3)}, PLAIN)
    own = ("run", *FAKE, "--protocol", f"lm-eval:{path}", "--out", tmp_path / "run")
    for words, says in (
        ((*own, "--data", path), "roads.yaml would not"),
        ((*own, "--chat", "turns"), "--chat does not apply"),
        (
            ("run", *FAKE, "--protocol", "mmlu/original", "--allow-task-code", "--out", "x"),
            "--allow-task-code does not apply",
        ),
        (
            ("prompts", "--protocol", "mmlu", "--include-path", tmp_path),
            "--include-path does not apply",
        ),
    ):
        assert says in command(*words, code=2).stderr


def test_code_is_asked_for_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def asked(doc):\n    return doc['question']\n")
    text = "\n".join(line for line in PLAIN.split("\n") if not line.startswith("doc_to_text"))
    path = write_task(tmp_path, "roads", SPLITS, text + "doc_to_text: !function own.asked\n")
    line = ("run", *FAKE, "--protocol", f"lm-eval:{path}:acc", "--out", tmp_path / "run")
    assert "doc_to_text: own.asked" in command(*line, code=4).stderr
    command(*line, "--allow-task-code", code=0)
    assert open_run(tmp_path / "run").manifest.job["allow_task_code"] is True
