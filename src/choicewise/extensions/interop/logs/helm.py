"""HELM.

Runs that differ in their subject alone are one log; every train trial, split and perturbation is a log of its own, as
HELM counts each by itself.

benchmark/runner.py of stanford-crfm/helm@63754d0 (2026) and @cab5d89 (June 2023) writes the files; what is in them say
benchmark/adaptation/request_state.py and common/request.py.

HELM counts the tokens of " " + reference with the model's tokenizer and takes as many from the end of the completion
(BasicReferenceMetric.evaluate_references, basic_metrics.py@63754d0 and @cab5d89).  A log has no tokenizer but the text
of every token, so the tokens are taken that spell the reference; where none begins where it does, nothing is scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf, isfinite, isnan, nan
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final, NamedTuple

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import laid_out_by, parts, unreadable, whole
from choicewise.extensions.interop.logs.verdicts import beyond_null, letter, per_token
from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.questions import EOS, LENGTH, STOP

RULES: Final = {
    "multiple_choice_joint": ("letter-match", "opencompass@14ca958", "harness-letter@4e7e0d4"),
    "multiple_choice_joint_chain_of_thought": (
        "letter-match",
        "opencompass@14ca958",
        "simple-evals@f517a91",
    ),
}
"""Rules that read a letter in what the model wrote, by adapter method, HELM's own first."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is of this tool, or holds files of it."""
    return path.name == STATE or (path.is_dir() and any(_folders(path)))


def _folders(path: Path) -> Iterator[Path]:
    """The run folders in ``path``, itself included, and those of a suite."""
    if path.is_dir():
        yield from (
            file.parent
            for pattern in (STATE, f"*/{STATE}", f"*/*/{STATE}")
            for file in sorted(path.glob(pattern))
        )
    else:
        yield path.parent


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every model, task, trial, split and perturbation; runs that differ in their subject alone are one."""
    if results is not None:
        raise DataError(
            f"{results}: a run folder of HELM holds its own results; leave the file of results out"
        )
    together: dict[tuple[str, str], list[HelmRun]] = {}
    lost: list[str] = []
    for folder in dict.fromkeys(folder for path in paths for folder in _folders(path)):
        try:
            with laid_out_by("HELM", folder):
                run = read_folder(folder)
        except DataError as error:
            lost.append(folder.name)
            yield unreadable("helm", folder, error)
            continue
        together.setdefault((run.model, run.task), []).append(run)
    for (_, task), runs in together.items():
        scenario = task.partition(":")[0]
        parts = tuple(
            f"{name}, which can't be read" for name in lost if name.partition(":")[0] == scenario
        )
        for log in _logs(runs):
            yield replace(log, unused=(*log.unused, *parts))


def _logs(runs: Sequence[HelmRun]) -> Iterator[Log]:
    first, several = runs[0], len(runs) > 1
    unused = ["the log-probabilities of single tokens"] if first.method in SEPARATE else []
    if without := [run.folder.name for run in runs if run.judged is None]:
        unused.append(f"nothing to check against: {without[0]} has no per_instance_stats.json")
    groups = sorted({group for run in runs for group in run.instances})
    for group in groups:
        instances = [(run, each) for run in runs for each in run.instances.get(group, ())]
        null = null_context([each for _, each in instances])
        items: list[LoggedItem] = []
        for run, each in instances:
            recorded = (run.judged or {}).get((group.trial, group.perturbation, each.id), {})
            item = each.item(recorded, null)
            items.append(
                replace(item, id=f"{each.subject or run.folder.name}/{each.id}")
                if several
                else item
            )
        if not any(
            item.text_loglikelihood for item in items
        ):  # HELM writes 0 where a model gives no log-probabilities
            items = [replace(item, text_loglikelihood=None) for item in items]
        facts = {
            "trial": str(group.trial) if len({each.trial for each in groups}) > 1 else "",
            "split": group.split if len({each.split for each in groups}) > 1 else "",
            "perturbation": group.perturbation,
        }
        yield Log(
            tool="helm",
            model=first.model,
            task=" ".join(
                [first.task, *(f"{key}={value}" for key, value in facts.items() if value)]
            ),
            items=tuple(items),
            settings={**first.settings, **{key: value for key, value in facts.items() if value}},
            null=null,
            recorded={} if several or len(groups) > 1 else first.totals,
            unused=tuple(unused),
            rules=RULES.get(first.method, ()),
        )


STATE: Final = "scenario_state.json"
"""The file that every run folder has."""

RECORDED: Final = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "max_prob",
    "predicted_index",
)
"""Statistics of HELM that say how an instance was answered."""

_SETTINGS: Final = (
    *(
        "model_deployment",
        "max_train_instances",
        "max_eval_instances",
        "max_tokens",
        "temperature",
        "instructions",
    ),
    "output_mapping_pattern",
)
"""What of the adapter's specification is kept."""


class Group(NamedTuple):
    """Instances that HELM counts together: those of one train trial, split and perturbation ('' for none)."""

    trial: int
    split: str
    perturbation: str


@dataclass(slots=True)
class Instance:
    """An instance while its requests are read: ``scored`` by the mode of the request and the place of the reference."""

    id: str
    question: str
    references: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str
    scored: dict[tuple[str, int], LoggedChoice] = field(default_factory=dict)
    context: str | None = None
    generated: str | None = None
    text_loglikelihood: float | None = None
    finish: str | None = None

    def add(self, state: Mapping[str, Any], method: str, place: str) -> None:
        """What one request says."""
        if method in JOINT:
            self._add_letter(state, place)
            return
        index = state.get("reference_index")
        if not isinstance(index, int) or not 0 <= index < len(self.references):
            raise DataError(
                f"{place} (instance {self.id!r}) asks about reference {index!r} of {len(self.references)}"
            )
        key = (str(state.get("request_mode") or "original"), index)
        if key in self.scored:
            raise DataError(
                f"{place} (instance {self.id!r}) asks about reference {index} a second time"
            )
        self.scored[key] = scored_reference(state, self.references[index])

    def _add_letter(self, state: Mapping[str, Any], place: str) -> None:
        labels = list(state.get("output_mapping") or ())
        if labels != list(ascii_uppercase[: len(self.references)]):
            raise DataError(
                f"{place} (instance {self.id!r}) has the labels {labels}; A, B, C and so on are read"
            )
        if self.context is not None:
            raise DataError(
                f"{place} asks instance {self.id!r} a second time in one trial; import a run of one trial"
            )
        self.context = str((state.get("request") or {}).get("prompt", ""))
        completion, reason = answered(state)
        if completion is None:
            choices = [LoggedChoice(missing=reason) for _ in labels]
        else:
            self.generated = str(completion.get("text", ""))
            self.text_loglikelihood = _number(completion.get("logprob"))
            reasons = completion.get("finish_reason")
            self.finish = FINISHED.get(
                str(reasons.get("reason")) if isinstance(reasons, dict) else ""
            )
            choices = letter_choices(completion, labels)
        self.scored |= {("original", index): choice for index, choice in enumerate(choices)}

    def item(self, recorded: Mapping[str, float], null: str | None) -> LoggedItem:
        """The item; ``null`` as in :func:`null_context`."""
        choices = [self._choice(index, null) for index in range(len(self.references))]
        contexts = {choice.context for choice in choices if choice.context is not None}
        if len(contexts) == 1:
            self.context = contexts.pop()
            choices = [replace(choice, context=None) for choice in choices]
        return LoggedItem(
            id=self.id,
            gold=self.gold,
            choices=tuple(choices),
            context=self.context,
            subject=self.subject,
            question=self.question,
            options=self.references,
            generated=self.generated,
            finish=self.finish,
            text_loglikelihood=self.text_loglikelihood,
            recorded=recorded,
        )

    def _choice(self, index: int, null: str | None) -> LoggedChoice:
        choice = self.scored.get(("original", index))
        if choice is None:
            return LoggedChoice(missing="the log has no request about this reference")
        after_null = self.scored.get(("calibration", index))
        if null is None or after_null is None:
            return choice
        return replace(choice, unconditional=after_null.loglikelihood)


@dataclass(frozen=True)
class HelmRun:
    """One run folder."""

    folder: Path
    model: str
    task: str
    settings: Mapping[str, str]
    method: str
    instances: Mapping[Group, Sequence[Instance]]
    judged: Mapping[tuple[int, str, str], Mapping[str, float]] | None
    """What HELM says by (trial, perturbation, id); None where the folder has no ``per_instance_stats.json``."""
    totals: Mapping[str, float]


def read_folder(folder: Path) -> HelmRun:
    """All of a folder.  Raises DataError where it is no finished run of multiple-choice questions by one model."""
    spec = _optional(folder / "run_spec.json") or {}
    name, arguments = _name(str(spec.get("name") or folder.name))
    subject = str(
        ((spec.get("scenario_spec") or {}).get("args") or {}).get("subject")
        or arguments.get("subject", "")
    )
    adapter: dict[str, Any] = spec.get("adapter_spec") or {}
    method, models = str(adapter.get("method", "")), set()
    instances: dict[tuple[Group, str], Instance] = {}
    state_file = folder / STATE
    for number, (key, state) in enumerate(parts(state_file, "request_states")):
        if key == "adapter_spec" and isinstance(state, dict):
            adapter, method = state, _method(state, state_file)
        if key != "request_states":
            continue
        place = f"{state_file}, request state {number - 1}"
        if not isinstance(state, dict):
            raise DataError(f"{place} is no object; it is no scenario state of HELM")
        group, instance = new_instance(state, place, subject)
        instance = instances.setdefault((group, instance.id), instance)
        instance.add(state, _method({"method": method}, state_file), place)
        models.add(str((state.get("request") or {}).get("model") or adapter.get("model") or ""))
    if not instances:
        raise DataError(
            f"{state_file} holds no requests; the run has no instances, or was stopped before the first"
        )
    if len(models) > 1:
        raise DataError(
            f"{state_file} mixes the models {', '.join(sorted(models))}; a run has one, so split it"
        )
    grouped: dict[Group, list[Instance]] = {}
    for (group, _), instance in instances.items():
        grouped.setdefault(group, []).append(instance)
    others = ("model", "model_deployment", "subject")
    task = ",".join(f"{key}={value}" for key, value in arguments.items() if key not in others)
    settings = {
        "method": method,
        **{key: str(adapter[key]) for key in _SETTINGS if adapter.get(key) not in (None, "")},
    }
    totals = _totals(_optional(folder / "stats.json"))
    return HelmRun(
        folder,
        models.pop(),
        f"{name}:{task}" if task else name,
        settings,
        method,
        grouped,
        _judged(folder),
        totals,
    )


def _name(name: str) -> tuple[str, dict[str, str]]:
    """``mmlu:subject=anatomy,model=x`` → mmlu and its arguments."""
    scenario, _, rest = name.partition(":")
    pairs = (part.partition("=") for part in rest.split(",") if "=" in part)
    return scenario, {key: value for key, _, value in pairs}


def _method(adapter: Mapping[str, Any], path: Path) -> str:
    method = str(adapter.get("method", ""))
    if method not in (*JOINT, *SEPARATE):
        raise DataError(
            f"{path} has adapter method {method or 'unknown'}; {', '.join((*JOINT, *SEPARATE))} are read"
        )
    return method


def _optional(path: Path) -> Any:
    return whole(path) if path.exists() else None


def _judged(folder: Path) -> dict[tuple[int, str, str], dict[str, float]] | None:
    path = folder / "per_instance_stats.json"
    if not path.exists():
        return None
    judged: dict[tuple[int, str, str], dict[str, float]] = {}
    for _, given in parts(path, ""):
        if not isinstance(given, dict):
            raise DataError(f"{path} holds no list of instances; it is no file of HELM")
        key = (
            int(given.get("train_trial_index") or 0),
            perturbation(given),
            str(given.get("instance_id")),
        )
        judged.setdefault(key, {}).update(
            (str(name["name"]), value) for name, value in _statistics(given.get("stats"))
        )
    return judged


def _totals(stats: Any) -> dict[str, float]:
    return {
        " ".join([str(name["name"]), *([str(name["split"])] if name.get("split") else [])]): value
        for name, value in _statistics(stats)
        if not name.get("perturbation")
    }


def _statistics(stats: Any) -> Iterator[tuple[Mapping[str, Any], float]]:
    """(name, mean) of the statistics that are kept; HELM leaves out a mean that is no number."""
    for stat in stats if isinstance(stats, list) else ():
        name = stat.get("name") if isinstance(stat, dict) else None
        if isinstance(name, dict) and name.get("name") in RECORDED:
            mean = stat.get("mean")
            if isinstance(mean, int | float) and isfinite(mean):
                yield name, float(mean)


FINISHED: Final = {"stop": STOP, "endoftext": EOS, "length": LENGTH}
"""HELM's reasons for the end of a completion as ours; of others it is not known."""

JOINT: Final = ("multiple_choice_joint", "multiple_choice_joint_chain_of_thought")
"""Adapter methods in which the model writes the letter of an option."""

SEPARATE: Final = ("multiple_choice_separate_original", "multiple_choice_separate_calibrated")
"""Adapter methods in which each reference is scored in a request of its own."""


def null_context(instances: Sequence[Instance]) -> str | None:
    """The one context of all calibration requests, or None where there is none or they differ."""
    contexts = {
        choice.context
        for instance in instances
        for (mode, _), choice in instance.scored.items()
        if mode == "calibration" and choice.context is not None
    }
    return contexts.pop() if len(contexts) == 1 else None


def new_instance(state: Mapping[str, Any], place: str, subject: str) -> tuple[Group, Instance]:
    """The instance that a request is about, without what was asked.  Raises DataError where it can't be an item."""
    given = state.get("instance")
    if not isinstance(given, dict) or not given.get("id"):
        raise DataError(f"{place} is about no instance with an id; it is no request state of HELM")
    references = [each for each in given.get("references") or () if isinstance(each, dict)]
    gold = tuple(
        index for index, each in enumerate(references) if "correct" in (each.get("tags") or ())
    )
    if len(references) < 2:
        raise DataError(
            f"{place}: instance {given['id']!r} has {len(references)} references; only multiple-choice questions can be"
            " imported"
        )
    texts = tuple(str((each.get("output") or {}).get("text", "")) for each in references)
    group = Group(
        int(state.get("train_trial_index") or 0), str(given.get("split") or ""), perturbation(given)
    )
    question = str((given.get("input") or {}).get("text", ""))
    return group, Instance(
        str(given["id"]), question, texts, gold, subject or str(given.get("sub_split") or "")
    )


def perturbation(given: Mapping[str, Any]) -> str:
    """How an instance was changed, in words: the perturbation's name and what else tells it from others."""
    description = given.get("perturbation")
    if not isinstance(description, dict):
        return ""
    use = ("name", "robustness", "fairness", "computed_on", "seed")
    changes = [f"{key}={value}" for key, value in description.items() if key not in use]
    return " ".join([str(description.get("name", "perturbed")), *changes])


NO_LIKELIHOOD: Final = (
    "the log has a letter that the model wrote, and no log-likelihoods of the options"
)
"""Why an option of a joint request has no score."""

_ESCAPED: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


def token_bytes(text: str) -> bytes:
    r"""The bytes of a token's text; ``bytes:\xe2\x80`` is how HELM writes a part of a character."""
    if text.startswith("bytes:"):
        return _ESCAPED.sub(
            lambda match: bytes.fromhex(match[1].decode()), text.removeprefix("bytes:").encode()
        )
    return text.encode("utf-8", "replace")


def reference_tokens(texts: Sequence[str], reference: str) -> int | None:
    """How many tokens at the end spell " " + ``reference``, or None where no token begins where it does.

    Tokens that were decoded one by one have lost their spaces (SentencePiece), so where the bytes don't agree those
    that are no white space must, and then the fewest tokens are taken.
    """
    whole = (" " + reference).encode("utf-8", "replace")
    bare = b"".join(whole.split())
    spelled, sparse = b"", None
    for count, text in enumerate(reversed(texts), start=1):
        spelled = token_bytes(text) + spelled
        if spelled == whole:
            return count
        packed = b"".join(spelled.split())
        if packed == bare and sparse is None and bare:
            sparse = count
        if len(packed) > len(bare) or len(spelled) > 4 * len(whole) + 64:
            break
    return sparse


def scored_reference(state: Mapping[str, Any], reference: str) -> LoggedChoice:
    """What a request that echoes its prompt says of the ``reference`` at its end."""
    prompt = str((state.get("request") or {}).get("prompt", ""))
    if not prompt.endswith(reference) or not reference:
        return LoggedChoice(
            missing="the prompt does not end with the reference, so its tokens can't be told"
        )
    space = prompt[: len(prompt) - len(reference)].endswith(" ")
    text = " " * space + reference
    context = prompt[: len(prompt) - len(text)]
    completion, reason = answered(state)
    tokens = [each for each in (completion or {}).get("tokens") or () if isinstance(each, dict)]
    count = reference_tokens([str(token.get("text", "")) for token in tokens], reference)
    if reason is None and not tokens:
        reason = "the log has no tokens of the completion"
    if reason is None and count is None:
        reason = "no token of the completion begins where the reference does"
    if reason is not None or count is None:
        return LoggedChoice(text=text, context=context, missing=reason)
    scored = tokens[-count:]
    values = [_number(token.get("logprob")) for token in scored]
    if not all(map(isfinite, values)):
        missing = "a token's log-probability is no number"
        return LoggedChoice(text=text, context=context, tokens=count, missing=missing)
    return LoggedChoice(
        loglikelihood=fsum(values), text=text, context=context, tokens=count, greedy=_greedy(scored)
    )


def letter_choices(completion: Mapping[str, Any], letters: Sequence[str]) -> list[LoggedChoice]:
    """What the log-probabilities beside the first written token say of the ``letters``.

    Logs of 2022 and 2023 have the likeliest tokens (five, as a rule).  They are read as " A" or as "A", whichever more
    letters have; a letter that is none of them has no number.
    """
    first = next((each for each in completion.get("tokens") or () if isinstance(each, dict)), {})
    tops = first.get("top_logprobs")
    top = {text: _number(value) for text, value in tops.items()} if isinstance(tops, dict) else {}
    if not top:
        return [LoggedChoice(missing=NO_LIKELIHOOD) for _ in letters]
    space = max((" ", ""), key=lambda space: sum(space + letter in top for letter in letters))
    absent = f"it is none of the {len(top)} likeliest tokens, and the log has no others"
    likeliest = max(top, key=lambda text: top[text])
    return [
        LoggedChoice(loglikelihood=top[text], text=text, tokens=1, greedy=text == likeliest)
        if isfinite(top.get(text, -inf))
        else LoggedChoice(text=text, missing=absent)
        for text in (space + letter for letter in letters)
    ]


def answered(state: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    """The completion with the greatest log-probability, which is the one HELM judges; or why there is none."""
    result = state.get("result")
    if not isinstance(result, dict):
        return None, "the request was never sent"
    if not result.get("success", True):
        return (
            None,
            "the request failed; the scenario state says why",
        )  # its message may hold an address with a secret
    completions = [each for each in result.get("completions") or () if isinstance(each, dict)]
    if not completions:
        return None, "the log has no completion"
    return max(completions, key=lambda each: _number(each.get("logprob"))), None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value == value else float("-inf")


def _greedy(tokens: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether each token was the likeliest, as logs of 2022 and 2023 say in ``top_logprobs``."""
    tops = [
        top
        for token in tokens
        for top in (token.get("top_logprobs"),)
        if isinstance(top, dict) and top
    ]
    if len(tops) < len(tokens):
        return None
    likeliest = [max(top, key=lambda text: _number(top[text])) for top in tops]
    return likeliest == [token.get("text") for token in tokens]


def _exact_match(log: Log, item: LoggedItem) -> float:
    """Return HELM's credit for a letter, or for the best references, of which tied ones share it."""
    if log.rules:
        return letter(log, item)
    scores = _scores(log, item)
    if any(map(isnan, scores)):
        return nan
    best = {index for index, score in enumerate(scores) if score == max(scores)}
    return len(best.intersection(item.gold)) / len(best)


def _predicted_index(log: Log, item: LoggedItem) -> float:
    scores = _scores(log, item)
    if log.rules or any(map(isnan, scores)):
        return nan
    return float(scores.index(max(scores)))


def _scores(log: Log, item: LoggedItem) -> list[float]:
    if log.settings.get("method", "").endswith("calibrated"):
        return beyond_null(item)
    return per_token(item)


VERDICTS: Final[Mapping[str, Verdict]] = {
    "exact_match": _exact_match,
    "predicted_index": _predicted_index,
}
"""BasicReferenceMetric and exact_match of stanford-crfm/helm@63754d0."""
