"""Measure ways of computing a score: ``choicewise check``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import Loading, grouped
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import DataError, ModelError
from choicewise.table import Table
from choicewise.util.files import read_text
from choicewise.util.jsonio import JsonDict

if TYPE_CHECKING:
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.model import Model


@grouped
def check(
    *,
    model: Annotated[
        str, typer.Option("--model", help="A model folder, or a model behind a server.")
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Measure the distance to another model with the same tokens, such as a "
            "quantised one.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            help="With --against: a file with one text per line (default: the bundled questions).",
        ),
    ] = None,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Measure a model's numeric noise: how much a score depends on how it is computed, in nats.

    Shows which fast path a run takes, and why others are refused. For a model behind a server it
    shows which routes give right numbers, and which protocols work. Reports mark items as near ties
    if their two best scores are closer than the noise.

    With --against it measures the mean KL divergence of the other model's next token instead, with
    its 95 % interval.
    """
    if against is None:
        options.refuse_without_use("a check without --against", texts=texts)
    loaded = loading.load(model)
    if against is not None:
        twins = measure_twins(loaded, loading.load(against), texts)
        if json:
            print_json(twins)
        else:
            show(*_twin_lines(twins))
        return
    from choicewise.models.kinds import kind_of

    examined = kind_of(loaded).examine(loaded)
    if examined is not None:
        record, parts = examined
        if json:
            print_json(record)
            return
        for part in parts:
            if isinstance(part, str):
                show(part)
            else:
                print_parts([part])
        notes = [f"note: {note}" for note in record["notes"]]
        tell(*notes)
        return
    noise = measure_noise(loaded)
    name = noise["model"]
    if json:
        print_json(noise)
    elif not noise["trials"]:
        show(f"{name} computes the same numbers every way: no noise to measure")
    else:
        print_parts(_tables(noise))
        readings = ", ".join(noise["readings"])
        show(f"readings of {name}: {readings}")


def measure_noise(model: Model) -> JsonDict:
    """Return the self-check of ``model`` with its noise, and by how much common ways to run it
    differ (nats).
    """
    from choicewise.models.kinds import kind_of
    from choicewise.protocols.readings import supported_readings

    readings = supported_readings(model.supports)
    head: JsonDict = {
        "model": model.name,
        "dtype": model.dtype,
        "device": model.device,
        "readings": readings,
    }
    of_kind = kind_of(model).measure_noise(model)
    if of_kind is not None:
        measured, compared = of_kind
        return {**head, **measured, "compared": compared}
    check = model.selfcheck
    if check is None:
        return {**head, "rung": None, "noise": None, "trials": [], "paths": []}
    from choicewise.extensions.check.paths import path_differences

    paths = []
    local = _local_model(model)
    if local is not None:
        differences = path_differences(local.lm)
        paths = [asdict(difference) for difference in differences]
    compared = "largest difference from one sequence at a time; for n tokens divided by √n"
    return {**head, **asdict(check), "paths": paths, "compared": compared}


def _local_model(model: Model) -> LocalModel | None:
    """Return the causal model that this process alone computes, None for any other model."""
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel, SharedModel

    # A model of a folder wraps the one that computes.
    local: object = model
    if isinstance(model, FolderModel):
        local = model.local
    # Other ranks of a shared model would wait for this one.
    if isinstance(local, SharedModel):
        return None
    if not isinstance(local, LocalModel):
        return None
    return local


def measure_twins(model: Model, other: Model, file: Path | None) -> JsonDict:
    """Return KL(model ‖ other) in nats a token, and the share of tokens with the same likeliest
    one.

    They are means over all tokens after the first of each text, and their errors are those of
    ratios over texts. ``file``: texts, one a line; None for the bundled questions,
    :data:`_QUESTIONS` of each subject. Raises ModelError for models that are not causal ones on
    this machine, or whose tokens differ.
    """
    import numpy as np

    from choicewise.extensions.check.paths import text_divergence
    from choicewise.scoring.significance import lost_per_token

    left = _local_model(model)
    right = _local_model(other)
    if left is None or right is None:
        raise ModelError(
            "--against needs two causal models on this machine; for others, run both and "
            "use `choicewise compare`"
        )
    has_other_tokenizer = model.tokenizer.digest != other.tokenizer.digest
    if has_other_tokenizer or left.vocabulary != right.vocabulary:
        raise ModelError(
            f"{model.name} and {other.name} have different tokens, so they can't be "
            "compared; name two models with the same tokenizer and vocabulary"
        )
    # The last token of a text is no input, so one more than the window fits.
    longest = min(model.window, other.window) + 1
    encoded = model.tokenizer.encode(_texts(file), special=True)
    texts = [ids[:longest] for ids in encoded if len(ids) > 1]
    if not texts:
        raise DataError(f"{file} has no text of two tokens or more; write one text per line")
    divergences = [text_divergence(left.lm, right.lm, ids) for ids in texts]
    # A row for each text, of its tokens, nats and agreeing tokens.
    columns = np.array(divergences, dtype=np.float64)
    tokens, nats, agreeing = columns.T
    token_counts = tokens.astype(np.int64)
    # Every text is an item of its own, against nothing.
    offsets = np.arange(len(texts) + 1)
    chosen = np.ones(len(texts), dtype=np.bool_)
    nothing = np.zeros(len(texts))
    cut_count = sum(len(ids) > longest for ids in encoded)
    divergence = lost_per_token(nats, nothing, token_counts, offsets, chosen)
    same_likeliest = lost_per_token(agreeing, nothing, token_counts, offsets, chosen)
    return {
        "model": model.name,
        "against": other.name,
        "texts": len(texts),
        "cut": cut_count,
        "tokens": int(token_counts.sum()),
        "divergence": divergence,
        "same_likeliest": same_likeliest,
    }


_QUESTIONS = 16
"""Bundled questions of each subject that two models are compared on."""


def _texts(file: Path | None) -> list[str]:
    if file is not None:
        try:
            lines = read_text(file).splitlines()
            return [line for line in lines if line.strip()]
        except OSError as error:
            raise DataError(
                f"{file} can't be read: {error.strerror}; name a file with one text per line"
            ) from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file} is not UTF-8: {error.reason}; write one text per line"
            ) from error
    from choicewise.bundled import BENCHMARK
    from choicewise.data.open import open_dataset

    by_subject: dict[str, list[str]] = {}
    dataset = open_dataset(BENCHMARK)
    for item in dataset.splits["test"]:
        text = "\n".join([item.question, *item.choices])
        texts_of_subject = by_subject.setdefault(item.subject, [])
        texts_of_subject.append(text)
    texts: list[str] = []
    for texts_of_subject in by_subject.values():
        texts += texts_of_subject[:_QUESTIONS]
    return texts


def _twin_lines(measured: JsonDict) -> list[str]:
    from choicewise.report.tables import nats
    from choicewise.util.text import counted, interval, percent, safe

    model = safe(measured["model"])
    other = safe(measured["against"])
    same = measured["same_likeliest"]
    bounds = interval(same.ci_low, same.ci_high)
    share = f"{percent(same.value)} % [{bounds}]"
    divergence = nats(measured["divergence"])
    tokens = measured["tokens"]
    texts = counted(measured["texts"], "text")
    cut_count = measured["cut"]
    cut = ""
    if cut_count:
        cut = f", {cut_count:,} of them cut to the window"
    return [
        f"A  {model}",
        f"B  {other}",
        f"KL(A‖B)  {divergence} nats per token, over {tokens:,} tokens of {texts}{cut}",
        f"same most likely next token after {share} of them",
    ]


def _tables(noise: JsonDict) -> list[Table]:
    """Return the paths that were tried, and what other ways of running the model would change."""
    from choicewise.report.tables import noise_columns, trial_table

    nats = noise["noise"]
    unit = (
        f"Noise of a token's log-probability: {nats:.2g} nats; for n tokens √n "
        "times as much. Reports count items closer than twice that as near ties."
    )
    computed = f"{noise['model']}, {noise['dtype']} on {noise['device']}"
    taken = f"{noise['rung']!r}, {noise['cost']}"
    title = f"{computed}: a run takes the path {taken}"
    compared = f"{noise['compared']}; sequences up to {noise['depth']} tokens"
    allowed = noise["tolerance"]
    note = f"{compared}. Up to {allowed:.2g} nats are allowed."
    trials = trial_table("path", title, noise["trials"], note)
    if not noise["paths"]:
        trials = replace(trials, notes=[*trials.notes, "", unit])
        return [trials]
    paths = []
    for path in noise["paths"]:
        reason = path["failed"] or ""
        paths.append((path["path"], path["difference"], reason))
    ways = Table(
        name="ways",
        title="largest change if the model ran another way",
        columns=noise_columns("way of running the model"),
        rows=paths,
        notes=[unit],
    )
    return [trials, ways]
