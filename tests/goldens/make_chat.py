"""Make ``tests/goldens/chat/*.json``: chats as the released LM Evaluation Harness renders them from invented rows.

Run it with an environment of its own that holds ``lm_eval`` 0.4.13 and ``transformers``, from the root of the checkout:
``python tests/goldens/make_chat.py``.  Contexts come from ``ConfigurableTask.fewshot_context`` with the harness's own
``HFLM.apply_chat_template``, continuations from ``construct_requests``.
"""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace

from golden_tools import GOLDENS, MODEL, write
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer

OUT = GOLDENS / "chat"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = {
    "chatml": (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "headers": (
        "{{ bos_token }}{% for message in messages %}<|start|>{{ message['role'] }}<|stop|>\n\n"
        "{{ message['content'] | trim }}<|eot|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant<|stop|>\n\n{% endif %}"
    ),
    "no-system": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate') }}{% endif %}<turn>"
        "{{ 'model' if message['role'] == 'assistant' else 'user' }}\n{{ message['content'] | trim }}</turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}"
    ),
}
WORDS = ("salt", "amber", "a red kite", "the third bell")
JARS = " Which of the {} jars holds what the miller hid?  "
LETTERED = [
    {"question": JARS.format(number + 2), "choices": [f"{word} of jar {number}" for word in WORDS]}
    | {"answer": (3 * number + 1) % 4, "subject": "mill_lore"}
    for number in range(6)
]
PEARS = "Orla gave Wenna {} pears because _ was hungry in the evening."
GAPS = [
    {
        "sentence": PEARS.format(number + 2),
        "option1": "Orla",
        "option2": "Wenna",
        "answer": str(1 + number % 2),
    }
    for number in range(4)
]
CHOSEN = "{{question.strip()}}\nA. {{choices[0]}}\nB. {{choices[1]}}\nC. {{choices[2]}}\nD. {{choices[3]}}\nAnswer:"
BY_LETTER = {
    "doc_to_text": CHOSEN,
    "doc_to_choice": ["A", "B", "C", "D"],
    "doc_to_target": "answer",
}
MILL = "The following are multiple choice questions (with answers) about mill lore.\n\n"
CONFIGS = {
    "letters": {**BY_LETTER, "description": MILL},
    "begun": {**BY_LETTER, "gen_prefix": "The best answer is"},
    "gap": {
        "doc_to_text": "{{0 if answer == '1' else 1}}",
        "doc_to_target": "{{sentence[sentence.index('_') + 1:].strip()}}",
        "doc_to_choice": "{% set at = sentence.index('_') %}{{[sentence[:at] + option1, sentence[:at] + option2]}}",
    },
}
SHOTS = {"letters": (0, 2), "begun": (0,), "gap": (0, 2)}
SYSTEMS = {
    "letters": (None, "You know every mill."),
    "begun": (None,),
    "gap": (None, "Finish the sentence."),
}


def main() -> None:
    """Write one file per template."""
    OUT.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    with tempfile.TemporaryDirectory() as folder:
        tasks = {name: task(name, Path(folder)) for name in CONFIGS}
        for name, template in TEMPLATES.items():
            tokenizer.chat_template = template
            model = SimpleNamespace(tokenizer=tokenizer, chat_template_args={})
            cases = [
                case(tasks[kind], kind, model, count, form, system)
                for kind in CONFIGS
                for count in SHOTS[kind]
                for form in ("turns", "message")
                for system in SYSTEMS[kind]
            ]
            write(OUT / f"{name}.json", {"template": template, "special": SPECIAL, "cases": cases})
    write(OUT / "rows.json", {"letters": LETTERED, "gap": GAPS}, ensure_ascii=True)


def task(kind: str, folder: Path) -> ConfigurableTask:
    """The task, with all rows but the last two as shots and these as questions."""
    rows = GAPS if kind == "gap" else LETTERED
    files = {split: str(folder / f"{kind}-{split}.jsonl") for split in ("dev", "test")}
    for file, own in zip(files.values(), (rows[:-2], rows[-2:]), strict=True):
        Path(file).write_text("".join(json.dumps(row) + "\n" for row in own))
    config = {
        "task": kind,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files},
        "test_split": "test",
    }
    config |= {
        "fewshot_split": "dev",
        "fewshot_config": {"sampler": "first_n"},
        "output_type": "multiple_choice",
    }
    return ConfigurableTask(config={**config, "metric_list": [{"metric": "acc"}], **CONFIGS[kind]})


def case(
    task: ConfigurableTask,
    kind: str,
    model: SimpleNamespace,
    shots: int,
    form: str,
    system: str | None,
) -> dict[str, object]:
    """What the harness sends for every question."""

    def apply(chat: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return HFLM.apply_chat_template(model, chat, add_generation_prompt)

    requests = []
    for doc in task.test_docs():
        how = {
            "apply_chat_template": True,
            "fewshot_as_multiturn": form == "turns",
            "chat_template": apply,
        }
        prefix = task.doc_to_prefix(doc)
        context = task.fewshot_context(
            doc, shots, system_instruction=system, gen_prefix=prefix, **how
        )
        sent = task.construct_requests(
            doc, context, apply_chat_template=True, metadata=(kind, 0, 1)
        )
        requests.append([list(each.arguments) for each in sent])
    return {"task": kind, "shots": shots, "chat": form, "system": system, "requests": requests}


if __name__ == "__main__":
    main()
