"""Read run folders of HELM: the requests of each instance, and HELM's statistics of them.

Runs that differ in their subject alone are one log; every train trial, split and perturbation is a
log of its own, because HELM counts each by itself.

benchmark/runner.py of stanford-crfm/helm@63754d0 (2026) and @cab5d89 (June 2023) writes the files;
their content is described in benchmark/adaptation/request_state.py and common/request.py.

HELM counts the tokens of " " + reference with the model's tokenizer and takes as many from the end
of the completion (BasicReferenceMetric.evaluate_references, basic_metrics.py@63754d0 and @cab5d89).
A log has no tokenizer but the text of every token, so the tokens that spell the reference are
taken; if no token begins where the reference does, nothing is scored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf, isfinite, isnan, nan
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    is_finite,
    laid_out_by,
    mapping,
    objects_among,
    parts,
    unreadable,
    whole,
)
from choicewise.extensions.interop.logs.verdicts import beyond_null, letter, per_token
from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.questions import EOS, LENGTH, STOP
from choicewise.util.jsonio import JsonMapping

RULES = {
    "multiple_choice_joint": ("letter-match", "opencompass@14ca958", "harness-letter@4e7e0d4"),
    "multiple_choice_joint_chain_of_thought": (
        "letter-match",
        "opencompass@14ca958",
        "simple-evals@f517a91",
    ),
}
"""Rules that read a letter in the text of the model, by adapter method, HELM's own first."""

STATE = "scenario_state.json"
"""The file that every run folder has."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a scenario state, a run folder, or a suite of run folders."""
    if path.is_dir():
        return any(_folders(path))
    return path.name == STATE


def _folders(path: Path) -> list[Path]:
    """Return the run folders in ``path``, itself included, and those of a suite."""
    if not path.is_dir():
        return [path.parent]
    files: list[Path] = []
    for pattern in (STATE, f"*/{STATE}", f"*/*/{STATE}"):
        files += sorted(path.glob(pattern))
    return [file.parent for file in files]


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for every model, task, trial, split and perturbation.

    Runs that differ in their subject alone are one log.  Raises DataError for ``results``.
    """
    if results is not None:
        raise DataError(
            f"{results}: a run folder of HELM holds its own results; leave the file of results out"
        )
    folders: dict[Path, None] = {}
    for path in paths:
        folders.update(dict.fromkeys(_folders(path)))
    runs_of_task: dict[tuple[str, str], list[HelmRun]] = {}
    unreadable_names = []
    for folder in folders:
        try:
            with laid_out_by("HELM", folder):
                run = read_folder(folder)
        except DataError as error:
            unreadable_names.append(folder.name)
            yield unreadable("helm", folder, error)
            continue
        runs_of_task.setdefault((run.model, run.task), []).append(run)
    for runs in runs_of_task.values():
        # The run of another subject would have been a part of this log.
        unused = tuple(
            f"{name}, which can't be read"
            for name in unreadable_names
            if name.partition(":")[0] == runs[0].scenario
        )
        for log in _logs(runs):
            yield replace(log, unused=(*log.unused, *unused))


def _logs(runs: Sequence[HelmRun]) -> Iterator[Log]:
    """Yield a log for each group of the ``runs``, which are of one model and task."""
    first = runs[0]
    unused = []
    if first.method in SEPARATE:
        unused.append("the log-probabilities of single tokens")
    unchecked = [run.folder.name for run in runs if run.judged is None]
    if unchecked:
        unused.append(f"nothing to check against: {unchecked[0]} has no per_instance_stats.json")
    groups: set[Group] = set()
    for run in runs:
        groups.update(run.instances)
    recorded = first.totals
    if len(runs) > 1 or len(groups) > 1:
        # HELM has no totals of several runs, and those of a run are of all its groups.
        recorded = {}
    for group in sorted(groups):
        facts = _facts(group, groups)
        spelled = [f"{name}={value}" for name, value in facts.items()]
        instances: list[Instance] = []
        for run in runs:
            instances += run.instances.get(group, ())
        null = null_context(instances)
        yield Log(
            tool="helm",
            model=first.model,
            task=" ".join([first.task, *spelled]),
            items=_items(runs, group, null),
            settings={**first.settings, **facts},
            null=null,
            recorded=recorded,
            unused=tuple(unused),
            rules=RULES.get(first.method, ()),
        )


def _facts(group: Group, groups: set[Group]) -> dict[str, str]:
    """Return how ``group`` differs from the other ``groups`` of its runs."""
    facts = {}
    if len({other.trial for other in groups}) > 1:
        facts["trial"] = str(group.trial)
    if group.split and len({other.split for other in groups}) > 1:
        facts["split"] = group.split
    if group.perturbation:
        facts["perturbation"] = group.perturbation
    return facts


def _items(runs: Sequence[HelmRun], group: Group, null: str | None) -> tuple[LoggedItem, ...]:
    items = []
    for run in runs:
        for instance in run.instances.get(group, ()):
            recorded: Mapping[str, float] = {}
            if run.judged is not None:
                key = (group.trial, group.perturbation, instance.id)
                recorded = run.judged.get(key, {})
            item = instance.item(recorded, null)
            # Instances of several subjects have the same ids.
            if len(runs) > 1:
                item = replace(item, id=f"{instance.subject or run.folder.name}/{instance.id}")
            items.append(item)
    if not any(item.text_loglikelihood for item in items):
        # HELM writes 0 if a model gives no log-probabilities.
        items = [replace(item, text_loglikelihood=None) for item in items]
    return tuple(items)


RECORDED = (
    "exact_match",
    "quasi_exact_match",
    "prefix_exact_match",
    "max_prob",
    "predicted_index",
)
"""Statistics of HELM that tell how an instance was answered."""

_SETTINGS = (
    "model_deployment",
    "max_train_instances",
    "max_eval_instances",
    "max_tokens",
    "temperature",
    "instructions",
    "output_mapping_pattern",
)
"""Fields of the adapter's specification that are kept."""


class Group(NamedTuple):
    """Name the train trial, split and perturbation ("" for none) of instances counted together."""

    trial: int
    split: str
    perturbation: str


@dataclass(slots=True, kw_only=True)
class Instance:
    """Hold an instance while its requests are read.

    ``scored``: by the mode of the request and the index of the reference.
    """

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

    def add(self, state: JsonMapping, method: str, where: str) -> None:
        """Add the answer to one request."""
        if method in JOINT:
            self._add_letter(state, where)
            return
        index = state.get("reference_index")
        if not isinstance(index, int) or not 0 <= index < len(self.references):
            raise DataError(
                f"{where} (instance {self.id!r}) asks about reference {index!r} of "
                f"{len(self.references)}"
            )
        key = (str(state.get("request_mode") or "original"), index)
        if key in self.scored:
            raise DataError(
                f"{where} (instance {self.id!r}) asks about reference {index} a second time"
            )
        self.scored[key] = scored_reference(state, self.references[index])

    def _add_letter(self, state: JsonMapping, where: str) -> None:
        labels = list(state.get("output_mapping") or ())
        # The rules that read a letter in a text know no other labels.
        if labels != list(ascii_uppercase[: len(self.references)]):
            raise DataError(
                f"{where} (instance {self.id!r}) has the labels {labels}; A, B, C and so on are "
                "read"
            )
        if self.context is not None:
            raise DataError(
                f"{where} asks instance {self.id!r} a second time in one trial; import a run of "
                "one trial"
            )
        self.context = _prompt(state)
        completion, reason = answered(state)
        if completion is None:
            choices = [LoggedChoice(missing=reason)] * len(labels)
        else:
            self.generated = str(completion.get("text", ""))
            self.text_loglikelihood = _number(completion.get("logprob"))
            finish = completion.get("finish_reason")
            if isinstance(finish, dict):
                self.finish = FINISHED.get(str(finish.get("reason")))
            choices = letter_choices(completion, labels)
        for index, choice in enumerate(choices):
            self.scored["original", index] = choice

    def item(self, recorded: Mapping[str, float], null: str | None) -> LoggedItem:
        """Return the item; ``null``: the context of :func:`null_context`."""
        choices = [self._choice(index, null) for index in range(len(self.references))]
        contexts = {choice.context for choice in choices if choice.context is not None}
        context = self.context
        if len(contexts) == 1:
            context = contexts.pop()
            choices = [replace(choice, context=None) for choice in choices]
        return LoggedItem(
            id=self.id,
            gold=self.gold,
            choices=tuple(choices),
            context=context,
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


@dataclass(frozen=True, kw_only=True)
class HelmRun:
    """Hold a run folder.

    ``judged``: HELM's statistics by (trial, perturbation, id), None if the folder has no
    ``per_instance_stats.json``.
    """

    folder: Path
    model: str
    scenario: str
    task: str
    settings: Mapping[str, str]
    method: str
    instances: Mapping[Group, Sequence[Instance]]
    judged: Mapping[tuple[int, str, str], Mapping[str, float]] | None
    totals: Mapping[str, float]


def read_folder(folder: Path) -> HelmRun:
    """Read a run folder.

    Raises DataError if it is no finished run of multiple-choice questions by one model.
    """
    spec = _optional(folder / "run_spec.json") or {}
    scenario, arguments = _name(str(spec.get("name") or folder.name))
    scenario_arguments = (spec.get("scenario_spec") or {}).get("args") or {}
    subject = str(scenario_arguments.get("subject") or arguments.get("subject", ""))
    states = _States(path=folder / STATE, subject=subject, adapter=spec.get("adapter_spec") or {})
    states.read()
    # Runs that differ in these arguments are of the same task.
    for name in ("model", "model_deployment", "subject"):
        arguments.pop(name, None)
    task = scenario
    if arguments:
        spelled = [f"{name}={value}" for name, value in arguments.items()]
        task = f"{scenario}:{','.join(spelled)}"
    settings = {"method": states.method}
    for name in _SETTINGS:
        value = states.adapter.get(name)
        if value not in (None, ""):
            settings[name] = str(value)
    return HelmRun(
        folder=folder,
        model=states.models.pop(),
        scenario=scenario,
        task=task,
        settings=settings,
        method=states.method,
        instances={group: list(of_id.values()) for group, of_id in states.instances.items()},
        judged=_judged(folder),
        totals=_totals(_optional(folder / "stats.json")),
    )


@dataclass(kw_only=True)
class _States:
    """Hold the scenario state of a run while it is read; instances by their group and id."""

    path: Path
    subject: str
    adapter: JsonMapping
    models: set[str] = field(default_factory=set)
    instances: dict[Group, dict[str, Instance]] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """Return the adapter method, by which an instance becomes requests."""
        return str(self.adapter.get("method", ""))

    def read(self) -> None:
        """Read the file."""
        for number, (key, value) in enumerate(parts(self.path, "request_states")):
            if key == "adapter_spec" and isinstance(value, dict):
                self.adapter = value
                self._check_method()
            if key == "request_states":
                # The adapter's specification comes before the states.
                self._add(value, f"{self.path}, request state {number - 1}")
        if not self.instances:
            raise DataError(
                f"{self.path} holds no requests; the run has no instances, or was stopped before "
                "the first"
            )
        if len(self.models) > 1:
            raise DataError(
                f"{self.path} mixes the models {', '.join(sorted(self.models))}; a run has one, so "
                "split it"
            )

    def _add(self, state: Any, where: str) -> None:
        if not isinstance(state, dict):
            raise DataError(f"{where} is not an object; it is not a scenario state of HELM")
        group, instance = new_instance(state, where, self.subject)
        instance = self.instances.setdefault(group, {}).setdefault(instance.id, instance)
        self._check_method()
        instance.add(state, self.method, where)
        request = state.get("request") or {}
        self.models.add(str(request.get("model") or self.adapter.get("model") or ""))

    def _check_method(self) -> None:
        methods = (*JOINT, *SEPARATE)
        if self.method not in methods:
            raise DataError(
                f"{self.path} has adapter method {self.method or 'unknown'}; {', '.join(methods)} "
                "are read"
            )


def _name(name: str) -> tuple[str, dict[str, str]]:
    """Split ``mmlu:subject=anatomy,model=x`` into mmlu and its arguments."""
    scenario, _, rest = name.partition(":")
    arguments = {}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if equals:
            arguments[key] = value
    return scenario, arguments


def _optional(path: Path) -> Any:
    if not path.exists():
        return None
    return whole(path)


def _judged(folder: Path) -> dict[tuple[int, str, str], dict[str, float]] | None:
    path = folder / "per_instance_stats.json"
    if not path.exists():
        return None
    judged: dict[tuple[int, str, str], dict[str, float]] = {}
    for _, instance in parts(path, ""):
        if not isinstance(instance, dict):
            raise DataError(f"{path} holds no list of instances; it is not a file of HELM")
        trial = int(instance.get("train_trial_index") or 0)
        key = (trial, perturbation(instance), str(instance.get("instance_id")))
        values = judged.setdefault(key, {})
        for name, mean in _statistics(instance.get("stats")):
            values[str(name["name"])] = mean
    return judged


def _totals(stats: Any) -> dict[str, float]:
    totals = {}
    for name, mean in _statistics(stats):
        if name.get("perturbation"):
            continue
        words = [str(name["name"])]
        if name.get("split"):
            words.append(str(name["split"]))
        totals[" ".join(words)] = mean
    return totals


def _statistics(stats: Any) -> Iterator[tuple[JsonMapping, float]]:
    """Yield the name and the mean of each statistic that is kept."""
    if not isinstance(stats, list):
        return
    for stat in objects_among(stats):
        name = stat.get("name")
        if not isinstance(name, dict) or name.get("name") not in RECORDED:
            continue
        # HELM leaves out a mean that is no number.
        mean = stat.get("mean")
        if is_finite(mean):
            yield name, float(mean)


FINISHED = {"stop": STOP, "endoftext": EOS, "length": LENGTH}
"""Our reasons for the end of a completion by those of HELM."""

JOINT = ("multiple_choice_joint", "multiple_choice_joint_chain_of_thought")
"""Adapter methods in which the model writes the letter of an option."""

SEPARATE = ("multiple_choice_separate_original", "multiple_choice_separate_calibrated")
"""Adapter methods in which each reference is scored in a request of its own."""


def null_context(instances: Sequence[Instance]) -> str | None:
    """Return the context of all calibration requests, None if there is none or they differ."""
    contexts = set()
    for instance in instances:
        for (mode, _), choice in instance.scored.items():
            if mode == "calibration" and choice.context is not None:
                contexts.add(choice.context)
    # Log-likelihoods after different contexts can not be compared with each other.
    if len(contexts) != 1:
        return None
    return contexts.pop()


def new_instance(state: JsonMapping, where: str, subject: str) -> tuple[Group, Instance]:
    """Return the instance of a request, without its answer.  Raises DataError if it is no item."""
    given = state.get("instance")
    if not isinstance(given, dict) or not given.get("id"):
        raise DataError(f"{where} has no instance with an id; it is not a request state of HELM")
    references = objects_among(given.get("references"))
    if len(references) < 2:
        raise DataError(
            f"{where}: instance {given['id']!r} has {len(references)} references; only "
            "multiple-choice questions can be imported"
        )
    gold = []
    texts = []
    for index, reference in enumerate(references):
        texts.append(str((reference.get("output") or {}).get("text", "")))
        if "correct" in (reference.get("tags") or ()):
            gold.append(index)
    group = Group(
        trial=int(state.get("train_trial_index") or 0),
        split=str(given.get("split") or ""),
        perturbation=perturbation(given),
    )
    instance = Instance(
        id=str(given["id"]),
        question=str((given.get("input") or {}).get("text", "")),
        references=tuple(texts),
        gold=tuple(gold),
        subject=subject or str(given.get("sub_split") or ""),
    )
    return group, instance


def perturbation(instance: JsonMapping) -> str:
    """Return the perturbation of an instance by its name and arguments, "" if there is none."""
    description = instance.get("perturbation")
    if not isinstance(description, dict):
        return ""
    words = [str(description.get("name", "perturbed"))]
    for key, value in description.items():
        # The other fields do not tell one perturbation from another.
        if key not in ("name", "robustness", "fairness", "computed_on", "seed"):
            words.append(f"{key}={value}")
    return " ".join(words)


NO_LIKELIHOOD = "the log has a letter that the model wrote, and no log-likelihoods of the options"
"""Reason why an option of a joint request has no score."""

_ESCAPED = re.compile(rb"\\x([0-9a-fA-F]{2})")


def token_bytes(text: str) -> bytes:
    r"""Return the bytes of a token; HELM writes a part of a character as ``bytes:\xe2\x80``."""
    if not text.startswith("bytes:"):
        return text.encode("utf-8", "replace")
    escaped = text.removeprefix("bytes:").encode()
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), escaped)


def reference_tokens(texts: Sequence[str], reference: str) -> int | None:
    """Return how many tokens at the end spell " " + ``reference``, None if none begins there.

    Tokens that were decoded one by one have lost their spaces (SentencePiece).  So if no bytes
    agree, bytes without white space have to agree, and then the fewest tokens are taken.
    """
    wanted = (" " + reference).encode("utf-8", "replace")
    wanted_without_space = b"".join(wanted.split())
    # A token may be white space alone, so a few bytes more than those wanted are read.
    longest = 4 * len(wanted) + 64
    spelled = b""
    count_without_space = None
    for count, text in enumerate(reversed(texts), start=1):
        spelled = token_bytes(text) + spelled
        if spelled == wanted:
            return count
        without_space = b"".join(spelled.split())
        if without_space == wanted_without_space and count_without_space is None and without_space:
            count_without_space = count
        if len(without_space) > len(wanted_without_space) or len(spelled) > longest:
            break
    return count_without_space


def _prompt(state: JsonMapping) -> str:
    return str((state.get("request") or {}).get("prompt", ""))


def scored_reference(state: JsonMapping, reference: str) -> LoggedChoice:
    """Return the choice of a request that echoes its prompt, which ends with ``reference``."""
    prompt = _prompt(state)
    if not prompt.endswith(reference) or not reference:
        return LoggedChoice(
            missing="the prompt does not end with the reference, so its tokens can't be found"
        )
    text = reference
    if prompt.endswith(f" {reference}"):
        text = f" {reference}"
    choice = LoggedChoice(text=text, context=prompt.removesuffix(text))
    completion, reason = answered(state)
    if completion is None:
        return replace(choice, missing=reason)
    tokens = objects_among(completion.get("tokens"))
    if not tokens:
        return replace(choice, missing="the log has no tokens of the completion")
    count = reference_tokens([str(token.get("text", "")) for token in tokens], reference)
    if count is None:
        reason = "no token of the completion begins where the reference does"
        return replace(choice, missing=reason)
    scored = tokens[-count:]
    choice = replace(choice, tokens=count)
    logprobs = [_number(token.get("logprob")) for token in scored]
    if not all(map(isfinite, logprobs)):
        return replace(choice, missing="a token's log-probability is no number")
    return replace(choice, loglikelihood=fsum(logprobs), greedy=_greedy(scored))


def letter_choices(completion: JsonMapping, letters: Sequence[str]) -> list[LoggedChoice]:
    """Return the choices of ``letters``, scored by the likeliest first tokens.

    Logs of 2022 and 2023 have the likeliest tokens (five, as a rule).  They are read as " A" or as
    "A", whichever more letters have; a letter that is none of them has no number.
    """
    tokens = objects_among(completion.get("tokens"))
    logprobs: dict[str, float] = {}
    if tokens:
        logprobs = _top_logprobs(tokens[0])
    if not logprobs:
        return [LoggedChoice(missing=NO_LIKELIHOOD)] * len(letters)
    texts = [f" {letter}" for letter in letters]
    if sum(text in logprobs for text in texts) < sum(letter in logprobs for letter in letters):
        texts = list(letters)
    absent = f"it is none of the {len(logprobs)} likeliest tokens, and the log has no others"
    likeliest = _likeliest(logprobs)
    choices = []
    for text in texts:
        choice = LoggedChoice(text=text, missing=absent)
        if isfinite(logprobs.get(text, -inf)):
            greedy = text == likeliest
            choice = LoggedChoice(loglikelihood=logprobs[text], text=text, tokens=1, greedy=greedy)
        choices.append(choice)
    return choices


def answered(state: JsonMapping) -> tuple[JsonMapping | None, str | None]:
    """Return the completion that HELM judges, or None and the reason why there is none."""
    result = state.get("result")
    if not isinstance(result, dict):
        return None, "the request was never sent"
    if not result.get("success", True):
        # Its message may hold an address with a secret.
        return None, "the request failed; the scenario state has the reason"
    completions = objects_among(result.get("completions"))
    if not completions:
        return None, "the log has no completion"
    # HELM judges the completion with the greatest log-probability.
    best = max(completions, key=lambda completion: _number(completion.get("logprob")))
    return best, None


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isnan(value):
        return -inf
    return float(value)


def _top_logprobs(token: JsonMapping) -> dict[str, float]:
    """Return the log-probabilities of the likeliest tokens, which logs of 2022 and 2023 have."""
    logprobs = mapping(token.get("top_logprobs"))
    return {text: _number(value) for text, value in logprobs.items()}


def _likeliest(logprobs: Mapping[str, float]) -> str:
    return max(logprobs, key=lambda text: logprobs[text])


def _greedy(tokens: Sequence[JsonMapping]) -> bool | None:
    """Return whether every token was the likeliest, None if the log does not tell."""
    likeliest = []
    for token in tokens:
        logprobs = _top_logprobs(token)
        if not logprobs:
            return None
        likeliest.append(_likeliest(logprobs))
    return likeliest == [token.get("text") for token in tokens]


def _exact_match(log: Log, item: LoggedItem) -> float:
    """Return HELM's credit for a letter, or for the best references, which share it if tied."""
    if log.rules:
        return letter(log, item)
    scores = _scores(log, item)
    if any(map(isnan, scores)):
        return nan
    best_score = max(scores)
    best = [index for index, score in enumerate(scores) if score == best_score]
    right = [index for index in best if index in item.gold]
    return len(right) / len(best)


def _predicted_index(log: Log, item: LoggedItem) -> float:
    scores = _scores(log, item)
    if log.rules or any(map(isnan, scores)):
        return nan
    return float(scores.index(max(scores)))


def _scores(log: Log, item: LoggedItem) -> list[float]:
    if log.settings.get("method", "").endswith("calibrated"):
        return beyond_null(item)
    return per_token(item)


VERDICTS: Mapping[str, Verdict] = {
    "exact_match": _exact_match,
    "predicted_index": _predicted_index,
}
"""BasicReferenceMetric and exact_match of stanford-crfm/helm@63754d0."""
