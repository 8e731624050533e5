"""Single requests: what our model of the harness answers, against its own model in float32."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from choicewise.errors import ModelError

from ..harness_compared import NAMES, near, ours, requests, theirs

PIECES = [
    "Question: ",
    "What is it?",
    "\n",
    "\n\n",
    " ",
    "  ",
    "\t",
    "Answer:",
    " A",
    "B",
    " the",
    "the",
    "ing",
    "wor",
]
PIECES += [
    "ld",
    "<s>",
    "</s>",
    "é",
    "e\u0301",
    "\u00a0",
    "你好",
    "🙂",
    ".",
    "'s",
    " (A)",
    "1234",
    "\u3000",
]
PIECES += ["\u200b", "\x1f"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=6)
BOS, LENGTHS = (
    {"add_bos_token": st.booleans(), "prefix_token_id": st.sampled_from([3, 7])},
    st.sampled_from([6, 24]),
)
ARGUMENTS = st.fixed_dictionaries({}, optional={**BOS, "max_length": LENGTHS})


def answered(model: Any, pair: tuple[str, str]) -> tuple[float, bool] | None:
    """The answer, or None where the model refuses to give one."""
    try:
        return tuple(model.loglikelihood(requests("loglikelihood", [pair]), disable_tqdm=True)[0])
    except (AssertionError, IndexError, ModelError):
        return None


@pytest.mark.parametrize("name", NAMES)
@given(pairs=PAIRS, arguments=ARGUMENTS)
@settings(max_examples=40)
def test_pairs_have_the_harness_s_tokens(
    name: str, pairs: list[tuple[str, str]], arguments: dict[str, Any]
) -> None:
    hf, encoder = theirs(name, **arguments), ours(name, **arguments)._encoder
    for (context, continuation), own in zip(pairs, encoder.pairs(pairs), strict=True):
        if context:
            before, after = hf._encode_pair(context, continuation)
            assert (own.context.tolist(), own.continuation.tolist()) == (before, after)
            assert (own.missing is None) == bool(before and after)
        elif after := hf.tok_encode(continuation, add_special_tokens=False):
            prefix = hf.prefix_token_id
            expected = (after[:1], after[1:]) if after[0] == prefix else ([prefix], after)
            assert (own.context.tolist(), own.continuation.tolist()) == expected
        else:
            assert own.missing


@pytest.mark.parametrize("name", NAMES)
@given(pairs=PAIRS, arguments=ARGUMENTS)
@settings(max_examples=12)
def test_pairs_have_the_harness_s_numbers(
    name: str, pairs: list[tuple[str, str]], arguments: dict[str, Any]
) -> None:
    known = [
        (pair, answer) for pair in pairs if (answer := answered(theirs(name, **arguments), pair))
    ]
    refused = [pair for pair in pairs if pair not in [answerable for answerable, _ in known]]
    own = ours(name, **arguments).loglikelihood(
        requests("loglikelihood", [pair for pair, _ in known])
    )
    for (total, greedy), (_, (expected, also)) in zip(own, known, strict=True):
        assert near(total, expected)
        assert greedy == also
    assert [answered(ours(name, **arguments), pair) for pair in refused] == [None] * len(refused)


@pytest.mark.parametrize("name", NAMES)
@given(
    texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), max_size=3),
    arguments=ARGUMENTS,
)
@settings(max_examples=10)
def test_rolling_texts_have_the_harness_s_numbers(
    name: str, texts: list[str], arguments: dict[str, Any]
) -> None:
    asked = requests("loglikelihood_rolling", texts)
    expected = theirs(name, **arguments).loglikelihood_rolling(asked, disable_tqdm=True)
    own = ours(name, **arguments).loglikelihood_rolling(asked)
    assert all(map(near, own, expected))
    assert len(own) == len(expected)


STOPS = st.lists(
    st.sampled_from(["\n", "\n\n", ".", " the", "e", "", "</s>", " a", "on"]), max_size=2
)
GREEDY = {"until": STOPS, "do_sample": st.just(False), "temperature": st.just(0.0)}
ANSWERS = st.tuples(
    TEXTS.filter(bool), st.fixed_dictionaries({"max_gen_toks": st.integers(1, 24)}, optional=GREEDY)
)


@pytest.mark.parametrize("name", NAMES)
@given(asked=st.lists(ANSWERS, min_size=1, max_size=4), length=st.sampled_from([None, 40]))
@settings(max_examples=8)
def test_answers_are_the_harness_s(
    name: str, asked: list[tuple[str, dict[str, Any]]], length: int | None
) -> None:
    arguments = {} if length is None else {"max_length": length}
    hf, model, known = theirs(name, **arguments), ours(name, **arguments), []
    for each in asked:
        (one,) = requests("generate_until", [each])
        try:
            known.append((each, hf.generate_until([one], disable_tqdm=True)[0]))
        except (IndexError, ValueError, RuntimeError):  # a context without tokens
            with pytest.raises(ModelError):
                model.generate_until([one])
    own = model.generate_until(requests("generate_until", [each for each, _ in known]))
    assert own == [answer for _, answer in known]


ABOUT_A_MODEL = {
    "config",
    "total_evaluation_time_seconds",
    "date",
    "model_source",
    "model_name",
    "samples",
}
"""What a results file says of more than the tasks."""

WORDS = "gate lamp river barley ferry bell mill tower heron salt bridge market candle frost orchard".split()


def rows(seed: int, count: int = 7) -> list[dict[str, Any]]:
    """Questions about a place that does not exist, with fields for every task below."""
    random_words = random.Random(seed)
    made = []
    for number in range(count):
        choices = [f"the {' '.join(random_words.sample(WORDS, size))}" for size in (1, 3, 2, 1)]
        if number == 2:
            choices[3] = choices[0]  # two choices are the same text
        noun = random_words.choice(WORDS)
        row = {"question": f"Who keeps the {noun} at hour {number}?", "choices": choices}
        row |= {"gold": random_words.randrange(3), "answer": str(1 + number % 2)}
        row |= {"story": " ".join(random_words.choice(WORDS) for _ in range(30 * (1 + number % 3)))}
        row |= {"last": random_words.choice(WORDS), "option1": choices[0], "option2": choices[1]}
        sentence = f"The {noun} was heavy, so _ stayed at home in the {random_words.choice(WORDS)}."
        made.append({**row, "sentence": sentence})
    return made


def texts(asked: str, metrics: str = "") -> str:
    """A task whose choices are texts after ``asked``, with metrics beside acc and acc_norm."""
    own = f"metric_list: [{{metric: acc}}, {{metric: acc_norm}}, {metrics}]\n"
    return f'output_type: multiple_choice\ndoc_to_text: "{asked}"\ndoc_to_choice: choices\ndoc_to_target: gold\n{own}'


LETTERS = """
output_type: multiple_choice
doc_to_text: "Question: {{question}}\\n{% for c in choices %}{{'ABCD'[loop.index0]}}. {{c}}\\n{% endfor %}Answer:"
doc_to_choice: ["A", "B", "C", "D"]
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: brier_score}]
"""
TASKS = {
    "letters": LETTERS,
    "letters_5_shots": LETTERS
    + 'num_fewshot: 5\ndescription: "The following are questions about Merrow.\\n\\n"\n',
    "texts": texts(
        "Question: {{question}}\\nAnswer:",
        "{metric: acc_bytes}, {metric: acc_mutual_info}, {metric: exact_match}",
    )
    + "num_fewshot: 2\n",
    "texts_after_white_space": texts("Question: {{question}}\\nAnswer:\\n\\n")
    + 'target_delimiter: " "\n',
    "texts_joined": texts("{{question}} It is ") + 'target_delimiter: ""\n',
    "texts_after_nothing": texts(""),
    "long": texts("{{story}} {{story}} {{story}} {{story}}\\nQuestion: {{question}}\\nAnswer:")
    + "num_fewshot: 3\n",
    "blanks": """
output_type: multiple_choice
doc_to_text: "{{answer | int - 1}}"
doc_to_choice: "{{[sentence.split('_')[0] + option1, sentence.split('_')[0] + option2]}}"
doc_to_target: "{{sentence.split('_')[1].strip()}}"
metric_list: [{metric: acc}]
""",
    "last_word": """
output_type: loglikelihood
doc_to_text: "{{story}}"
doc_to_target: "{{' ' + last}}"
target_delimiter: ""
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "stories": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{story}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "answers": """
output_type: generate_until
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{choices[gold]}}"
num_fewshot: 2
generation_kwargs: {until: ["\\n", "."], max_gen_toks: 24, do_sample: false}
metric_list: [{metric: exact_match}]
repeats: 2
""",
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tasks and their rows, and a group of two."""
    folder = tmp_path_factory.mktemp("tasks")
    for split, seed in (("test", 1), ("train", 2)):
        lines = "".join(json.dumps(row) + "\n" for row in rows(seed))
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    files = {split: str(folder / f"{split}.jsonl") for split in ("test", "train")}
    head = f"dataset_path: json\ndataset_kwargs: {json.dumps({'data_files': files})}\n"
    head += "test_split: test\ntraining_split: train\n"
    for name, body in TASKS.items():
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{head}{body}", encoding="utf-8")
    group = "group: both\ntask: [letters, texts]\naggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    (folder / "both.yaml").write_text(group, encoding="utf-8")
    return folder


def run(model: Any, tasks: Path, names: list[str], **options: Any) -> dict[str, Any]:
    """The results of the harness, as its results file holds them."""
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    options = {"bootstrap_iters": 100, "random_seed": 0, **options}
    results = simple_evaluate(model=model, tasks=names, task_manager=manager, **options)
    return json.loads(
        json.dumps(results, default=lambda value: getattr(value, "tolist", lambda: str(value))())
    )


def alike(own: Any, other: Any) -> bool:
    """Whether two parts of results are equal, numbers to rounding in float32.

    Perplexities raise a difference of sums to a power, and ours may be multiplied by another library.
    """
    match own, other:
        case dict(), dict():
            return own.keys() == other.keys() and all(alike(own[key], other[key]) for key in own)
        case list(), list():
            return len(own) == len(other) and all(map(alike, own, other))
        case (float(), float() | int()) | (int(), float()):
            return own == pytest.approx(other, rel=1e-4, abs=1e-4)
    return bool(own == other)


@pytest.mark.parametrize("name", NAMES)
def test_all_tasks_have_the_harness_s_results(name: str, tasks: Path) -> None:
    asked = ["both", *(task for task in TASKS if task not in ("letters", "texts"))]
    expected, own = (run(model, tasks, asked) for model in (theirs(name), ours(name)))
    for part in expected.keys() - ABOUT_A_MODEL:
        assert alike(own[part], expected[part]), part
    assert own["samples"].keys() == expected["samples"].keys()
    for task, samples in expected["samples"].items():
        assert len(samples) == len(own["samples"][task]) == 7
        for sample, other in zip(own["samples"][task], samples, strict=True):
            assert alike(sample, other), task


@pytest.mark.parametrize(
    "changes", [{"num_fewshot": 1}, {"limit": 3}, {"system_instruction": "Be brief. "}]
)
def test_settings_of_a_run_hold(changes: dict[str, Any], tasks: Path) -> None:
    name = NAMES[0]
    expected, own = (
        run(model, tasks, ["texts", "answers"], **changes) for model in (theirs(name), ours(name))
    )
    assert alike(own["results"], expected["results"])
    assert alike(own["samples"], expected["samples"])
    assert own["samples"]["texts"]


CHAT = """{% for m in messages %}<|{{ m['role'] }}|>
{{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
)


@pytest.mark.parametrize("template", [CHAT, NO_SYSTEM])
@pytest.mark.parametrize("turns", [True, False])
def test_chats_are_the_harness_s(template: str, turns: bool, tasks: Path) -> None:
    name = NAMES[0]
    options = {
        "apply_chat_template": True,
        "fewshot_as_multiturn": turns,
        "system_instruction": "Be brief.",
    }
    results = []
    for model in (theirs(name), ours(name)):
        model.tokenizer.chat_template = template
        try:
            results.append(run(model, tasks, ["letters_5_shots", "texts", "answers"], **options))
        finally:
            model.tokenizer.chat_template = None
    expected, own = results
    assert "<|user|>" in own["samples"]["texts"][0]["arguments"][0][0]
    assert alike(own["results"], expected["results"])
    assert alike(own["samples"], expected["samples"])


def test_the_template_that_is_named_is_the_one_that_is_used() -> None:
    own, hf = ours(NAMES[0]), theirs(NAMES[0])
    said = [{"role": "user", "content": "Who keeps the gate?"}]
    for model in (own, hf):
        model.tokenizer.chat_template = {"default": CHAT, "short": "{{ messages[0]['content'] }}"}
    try:
        assert (
            own.chat_template("short")
            == hf.chat_template("short")
            == "{{ messages[0]['content'] }}"
        )
        assert own.apply_chat_template(said) == "Who keeps the gate?"
        assert own.chat_template(True) == hf.chat_template(True) == CHAT
        assert own.apply_chat_template(said) == hf.apply_chat_template(said)
    finally:
        own.tokenizer.chat_template = hf.tokenizer.chat_template = None


def test_the_results_file_says_which_model_it_was(tasks: Path) -> None:
    config = run(ours(NAMES[0]), tasks, ["letters"])["config"]
    expected = run(theirs(NAMES[0]), tasks, ["letters"])["config"]
    for key in ("model_num_parameters", "model_dtype", "model_revision", "model_sha"):
        assert config[key] == expected[key]
    assert (config["choicewise_boundary"], len(config["choicewise_model"])) == ("harness", 64)
