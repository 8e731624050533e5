"""Make tests/goldens/logs/inspect: logs that Inspect itself writes, of questions and answers made up here.

    pip install inspect_ai==0.3.285
    python tests/goldens/make_logs_inspect.py

The model is Inspect's own stand-in, mockllm, which answers what is written here; tiktoken, which Inspect asks for token
counts, is replaced, as it would download its vocabulary.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import tiktoken
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import choice
from inspect_ai.solver import multiple_choice

HERE = Path(__file__).parent / "logs" / "inspect"
ROWS = [
    (
        "Which river crosses the town?",
        ["the Lune", "the Ash", "the Tarn", "the Wye"],
        "B",
        "ANSWER: B",
    ),
    (
        "What is baked for the feast?",
        ["rye bread", "a plum tart", "nothing", "a seed cake"],
        "D",
        "ANSWER: A",
    ),
    (
        "Who keeps the key of the mill?",
        ["the miller", "the clerk", "the smith"],
        "A",
        "Answer: C?\nNo.\n\nANSWER: A",
    ),
    (
        "When does the ferry stop?",
        ["at noon", "at dusk", "in the frost", "in May"],
        "C",
        "ANSWER: **c**",
    ),
    ("How many bells hang in the tower?", ["two", "three"], "B", "I do not know."),
    ("Which of these are towns?", ["Merrow", "Ash", "Lune"], ["A", "B"], "ANSWER: A"),
    ("Where does the road end?", ["at the sea", "at the mill"], "A", ""),
]


class Bytes:
    """A tokenizer of bytes."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())


def answer(messages: Any, *_: Any) -> ModelOutput:
    said = next(said for question, _, _, said in ROWS if question in messages[-1].text)
    if not said and failing:
        raise RuntimeError("the server was busy\n(429)")
    return ModelOutput.from_content("mockllm/model", said)


failing = False


def write(name: str, form: str, epochs: int = 1, **options: Any) -> None:
    """One log, called NAME.FORM."""
    samples = [
        Sample(id=f"town {place}", input=row[0], choices=row[1], target=row[2])
        for place, row in enumerate(ROWS)
    ]
    task = Task(
        dataset=MemoryDataset(samples, name="town"),
        solver=multiple_choice(),
        scorer=choice(),
        name="town",
    )
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    folder = HERE / "new"
    eval(
        task,
        model,
        log_dir=str(folder),
        log_format=form,
        epochs=epochs,
        display="none",
        max_samples=1,
        **options,
    )
    (log,) = folder.iterdir()
    log.rename(HERE / f"{name}.{form}")
    folder.rmdir()


def without_machine(file: Path) -> None:
    """The paths and the origin of the checkout where the log was made are nobody's business."""
    log = json.loads(file.read_text(encoding="utf-8"))
    log["eval"].pop("revision", None)
    for sample in log["samples"]:
        sample.pop("events", None)
    for error in filter(None, (part.get("error") for part in (log, *log["samples"]))):
        error |= {"traceback": "", "traceback_ansi": ""}
    file.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """A finished log in both forms, one of two epochs, one with a sample that failed, and one that was stopped."""
    global failing
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: Bytes()
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    write("finished", "eval")
    write("finished", "json")
    write("epochs", "eval", epochs=2)
    failing = True
    write("one-failed", "json", fail_on_error=False)
    write("stopped", "json", fail_on_error=True)
    for file in HERE.glob("*.json"):
        without_machine(file)


if __name__ == "__main__":
    main()
