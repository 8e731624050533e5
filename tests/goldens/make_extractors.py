"""Make tests/goldens/extractors.json: the letter that other tools' own code reads in texts, among four options.

    mkdir sources && cd sources    # clones of the repositories in SOURCES, each by its own name
    pip download --no-deps evalscope==1.14.1 && unzip evalscope-1.14.1-py3-none-any.whl -d evalscope
    python ../tests/goldens/make_extractors.py .

The functions alone run, out of the file of that commit, without the tool that they are a part of.  What the tool then
compares with the right letter is written down as it is, text by text, - for nothing: also a small letter, or one of no
option, which never is right.
"""

import ast
import random
import re
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from string import ascii_uppercase
from types import SimpleNamespace
from typing import Any

from golden_tools import GOLDENS, write

SOURCES = {
    "simple-evals@f517a91": ("simple-evals", "ee3b0318", "common.py"),
    "mmlu-pro@f418b11": ("MMLU-Pro", "f418b116", "evaluate_from_local.py"),
    "helm-gpqa@63754d0": (
        "helm",
        "63754d05",
        "src/helm/benchmark/metrics/gpqa_chain_of_thought_metric.py",
    ),
    "inspect@499e615": ("inspect_ai", "499e6152", "src/inspect_ai/solver/_multiple_choice.py"),
    "evalscope@1.14.1": ("evalscope", "", "evalscope/utils/multi_choices.py"),
    "olmo-eval-gpqa@e8b88f1": ("olmo-eval", "e8b88f19", "src/olmo_eval/evals/tasks/gpqa.py"),
    "lighteval-indices@3fd1526": (
        "lighteval",
        "3fd15266",
        "src/lighteval/metrics/utils/extractive_match_utils.py",
    ),
    "opencompass@a5acc4b": ("opencompass", "a5acc4bb", "opencompass/utils/text_postprocessors.py"),
    "opencompass@14ca958": ("opencompass", "14ca9580", "opencompass/utils/text_postprocessors.py"),
}
"""Rule → repository, commit (of a package none), file."""

HARNESS = {
    "harness-answer-is@4e7e0d4": "lm_eval/tasks/mmlu_pro/_default_template_yaml",
    "harness-letter@4e7e0d4": "lm_eval/tasks/mmlu-redux/generative/_default_template_yaml",
}
"""Rule → the task whose pattern the harness's first match is of."""

TABLE = [
    *(
        "B",
        "(B)",
        "B. Madrid",
        "Answer: B",
        "answer: b",
        "The answer is B.",
        "The correct answer is **B**.",
    ),
    *("Answer: **B**", "\\boxed{B}", "Answer: A is tempting, but no.\nAnswer: B"),
    *(
        "I think A is wrong. The answer is B because C is not.",
        "The answer is A? No, the answer is B.",
    ),
    *(
        "A car is fast, so option B",
        "Let me check A first: it has mass",
        "<think>Maybe the answer is A",
    ),
]
FURTHER = [
    *(
        "",
        "b",
        "E",
        "The answer is E.",
        "The answer is H, or else B.",
        "The answer is (C).",
        "the answer is: D",
    ),
    *(
        "The correct answer is: **C**",
        "The correct answer is the letter C",
        "correct answer is [aA]nswer: D",
    ),
    *(
        "Final answer is: C. I hope it is correct.",
        "The final answer to your question is B",
        "final answer: D.",
    ),
    *(
        "**C**. Paris",
        "\n**(C)** Paris",
        "(D) Oslo\nB is wrong",
        "D: Oslo",
        "D, of course",
        "Answer : (D)",
    ),
    *(
        "ANSWER: [C]",
        "ANSWER: $\\boxed{\\text{C}}$",
        "ANSWER: \\(D\\)",
        "ANSWER: [LETTER]\nANSWER: B",
        "ANSWER: A,",
    ),
    *(
        "ANSWER: B, not C",
        "ANSWER: A or B",
        "ANSWER: A and that is why",
        "ANSWER: AB",
        "ANSWER: (A, C)",
        "ANSWER:\nC",
    ),
    *(
        "Answer: because",
        "Answer:A\nAnswer: unknown",
        "nothing at all",
        "no idea. K",
        "Answer: H",
        "(H) or (Z)",
        "Option Z",
    ),
    *(
        "my answer: C answer: D\nanswer: A",
        "answer: Answer: C",
        "an answer:   \n\n  B",
        "answer:",
        "X answer: J. B",
    ),
    *(
        "答案是C",
        "答案选项为 **D**",
        "答案：B",
        "故选A只有B对",
        "正确答案是 A。",
        "D是正确的",
        "1. B because A",
        "1.C",
    ),
    *(
        "The correct option is: $\\boxed{C}$ and not A",
        "The answer is **D**",
        "The answer is option: C",
        " C ",
        "選 D。",
    ),
    *(
        "it is B: yes",
        "Is it A? B? Or C!",
        "Answer:\n\nThe word",
        "answer is A",
        "the answer would be (B) then",
        "B)",
    ),
    *(
        "The answer is\nB",
        "Question: who?\nAnswer: D. Me",
        "I'd say D\r\n",
        "A\nB\nC\nD",
        "so, (b)",
        "ANSWER: 1",
        "É B Ü",
    ),
]

State = Callable[[str], str | None]


def source(root: Path, repository: str, commit: str, file: str) -> str:
    if not commit:
        return (root / repository / file).read_text(encoding="utf-8")
    command = ["git", "-C", str(root / repository), "show", f"{commit}:{file}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loaded(text: str, *wanted: str, **given: Any) -> dict[str, Any]:
    """The functions and constants of ``wanted`` names, methods included, with ``given`` for what they import."""
    space = {"re": re, "random": random, "print": lambda *_: None, "Any": Any, **given}
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) if name in wanted:
                node.decorator_list = []
                for inner in (each for each in ast.walk(node) if isinstance(each, ast.FunctionDef)):
                    inner.returns = None
                    for argument in (*inner.args.args, *inner.args.kwonlyargs):
                        argument.annotation = None
            case ast.Assign(targets=[ast.Name(id=name)]) if name in wanted:
                pass
            case _:
                continue
        exec(compile(ast.Module([node], []), name, "exec"), space)  # noqa: S102
    return space


def simple_evals(text: str) -> State:
    pattern = loaded(text, "ANSWER_PATTERN_MULTICHOICE")["ANSWER_PATTERN_MULTICHOICE"]
    return lambda said: (match := re.search(pattern, said)) and match.group(1)


def mmlu_pro(text: str) -> State:
    return loaded(text, "extract_answer", "extract_again", "extract_final")["extract_answer"]


def helm(text: str) -> State:
    return loaded(text, "extract_answer")["extract_answer"]


def inspect(text: str) -> State:
    parse = loaded(text, "parse_answers", answer_character=lambda index: ascii_uppercase[index])[
        "parse_answers"
    ]
    return lambda said: next(iter(parse(state(said), False)), None)


def evalscope(text: str) -> State:
    patterns = [
        line.split(" = ")[0] for line in text.splitlines() if re.match(r"_[A-Z_]+ = ", line)
    ]
    functions = (
        "_fallback_parse_answer",
        "_is_label_word",
        "_label_prefix",
        "_last_labelled_answer",
        "parse_answers",
    )
    parse = loaded(
        text, *patterns, *functions, answer_character=lambda index: ascii_uppercase[index]
    )["parse_answers"]
    return lambda said: "".join(sorted(parse(state(said)))) or None


def olmo_eval(text: str) -> State:
    patterns = ("_ANSWER_PATTERN", "_PAREN_LETTER", "_LAST_CAPITAL")
    extract = loaded(text, *patterns, "extract_answer")["extract_answer"]
    return lambda said: extract(None, SimpleNamespace(text=said))


def lighteval(text: str) -> State:
    english = SimpleNamespace(
        answer="answer", full_stop=".", comma=",", colon=":", sentence_space=" "
    )
    config = SimpleNamespace(
        prefix_for_extraction="NativeLetters", try_extract_without_anchor=False
    )
    functions = loaded(
        text,
        *("lazy_indices_regex", "extract_indices", "extract_match", "extract_target_from_pred"),
        **{
            "TRANSLATION_LITERALS": {"english": english},
            "Language": SimpleNamespace(ENGLISH="english"),
        },
        **{"get_prefix": lambda *_: ascii_uppercase, "groupby": groupby, "lru_cache": lru_cache},
        **{
            "LatexExtractionConfig": int,
            "ExprExtractionConfig": int,
            "IndicesExtractionConfig": SimpleNamespace,
        },
    )
    patterns = [(functions["lazy_indices_regex"](config, 4, "english"), config)]
    return lambda said: next(
        iter(functions["extract_target_from_pred"](said, patterns, "first_match")), None
    )


def opencompass(text: str) -> State:
    first_option = loaded(text, "first_option_postprocess")["first_option_postprocess"]
    return lambda said: first_option(said, "ABCD") or None


def harness(filters: str, task: str) -> State:
    """The pattern of the task that is no comment, as ``RegexFilter`` applies it."""
    match = re.search(r"^ +regex_pattern: (['\"])(.*)\1$", task, re.MULTILINE)
    assert match is not None
    names = {
        "self": SimpleNamespace(regex=re.compile(match[2]), group_select=0, fallback="[invalid]")
    }
    apply = loaded(filters.split('@register_filter("regex_pos")')[0], "apply")["apply"]
    return lambda said: (
        None if (read := apply(names["self"], [[said]], [])[0][0]) == "[invalid]" else read
    )


def state(said: str) -> Any:
    return SimpleNamespace(output=SimpleNamespace(completion=said), choices=["w", "x", "y", "z"])


READERS: dict[str, Callable[[str], State]] = {
    **{"simple-evals": simple_evals, "MMLU-Pro": mmlu_pro, "helm": helm, "inspect_ai": inspect},
    **{
        "evalscope": evalscope,
        "olmo-eval": olmo_eval,
        "lighteval": lighteval,
        "opencompass": opencompass,
    },
}


def readers(root: Path) -> dict[str, State]:
    """Rule → what its source reads in a text."""
    own = {rule: READERS[where[0]](source(root, *where)) for rule, where in SOURCES.items()}
    filters = source(root, "lm-evaluation-harness", "4e7e0d47", "lm_eval/filters/extraction.py")
    tasks = {
        rule: source(root, "lm-evaluation-harness", "4e7e0d47", file)
        for rule, file in HARNESS.items()
    }
    return own | {rule: harness(filters, task) for rule, task in tasks.items()}


def main() -> None:
    texts = [*TABLE, *FURTHER]
    read = {
        rule: "".join(reader(text) or "-" for text in texts)
        for rule, reader in readers(Path(sys.argv[1])).items()
    }
    write(GOLDENS / "extractors.json", {"texts": texts, "read": read})


if __name__ == "__main__":
    main()
