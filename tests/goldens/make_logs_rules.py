"""Add to tests/goldens/logs/rules.json what a release of Inspect reads in the texts of that file.

pip install inspect_ai==0.3.264    # then 0.3.221, 0.3.121 and 0.3.42
python tests/goldens/make_logs_rules.py
"""

import json
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

from inspect_ai.solver import _multiple_choice as solver

FILE = Path(__file__).parent / "logs" / "rules.json"
TEXTS = [
    *(
        "ANSWER: A",
        "ANSWER: b",
        "answer : C",
        "ANSWER:\nD",
        "ANSWER: E",
        "ANSWER:",
        "",
        "B",
        "The answer is B.",
    ),
    *(
        "ANSWER: A.",
        "ANSWER: A, B",
        "ANSWER: AB",
        "ANSWER: A,",
        "ANSWER: A B",
        "ANSWER: None of the above",
    ),
    *(
        "ANSWER: A1",
        "ANSWER: B\nANSWER: C",
        "I say ANSWER: B and then ANSWER: D",
        "Not ANSWER: A!\n\nANSWER: C",
    ),
    *("ANSWER: C\nNo: A", "**ANSWER: B**", "ANSWER: **B**", "ANSWER: ** b **.", "ANSWER: $C$"),
    *(
        "ANSWER: $\\boxed{C}$",
        "ANSWER: (D)",
        "ANSWER: (D).\n",
        "ANSWER: D)",
        "ANSWER: [D]",
        "ANSWER: B because C",
    ),
    *(
        "ANSWER: Because",
        "ANSWER: A\r\n",
        "ANSWER: ,A,",
        "final ANSWER: A and B",
        "ANSWER: $LETTER\nANSWER: B",
    ),
    *("ANSWER : A .", "Answer: C?\nNo.\n\nANSWER: A", "ANSWER: 1"),
]


def read(text: str) -> str | None:
    """The one letter that the solver would mark, None where it marks none or several."""
    state = SimpleNamespace(output=SimpleNamespace(completion=text), choices=["w", "x", "y", "z"])
    if "multiple_correct" in signature(solver.parse_answers).parameters:
        marked = solver.parse_answers(state, False)
        return marked.pop() if len(marked) == 1 else None
    match = solver.parse_answers(state)
    places = (
        [solver.answer_index(letter) for letter in match.group(1)]
        if match and match.group(1)
        else []
    )
    marked = {"ABCD"[place] for place in places if 0 <= place < 4}
    return marked.pop() if len(marked) == 1 else None


def main() -> None:
    golden = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    golden[version("inspect_ai")] = {text: read(text) for text in TEXTS}
    FILE.write_text(json.dumps(dict(sorted(golden.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
