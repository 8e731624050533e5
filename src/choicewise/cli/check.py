"""Measure ways of computing a score, and score texts: ``choicewise check`` and ``choicewise
score``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.options import Loading, grouped
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import DataError, ModelError
from choicewise.table import Column, Table
from choicewise.util.files import read_text

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
    from choicewise.running.work import served_model

    if served_model(loaded) is not None:
        server = measure_server(loaded)
        if json:
            print_json(server)
        else:
            show_server(server)
        return
    noise = measure_noise(loaded)
    if json:
        print_json(noise)
    elif not noise["trials"]:
        show(f"{noise['model']} computes the same numbers every way: no noise to measure")
    else:
        print_parts(_tables(noise))
        show(f"readings of {noise['model']}: {', '.join(noise['readings'])}")


def measure_noise(model: Model) -> dict[str, Any]:
    """Return the self-check of ``model`` with its noise, and by how much common ways to run it
    differ (nats).
    """
    from choicewise.models.kinds import kind_of
    from choicewise.protocols.readings import supported_readings

    readings = supported_readings(model.supports)
    head: dict[str, Any] = {
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
    from choicewise.models.local.selfcheck import path_differences

    paths = []
    local = _local_model(model)
    if local is not None:
        paths = [asdict(difference) for difference in path_differences(local.lm)]
    compared = "largest difference from one sequence at a time; for n tokens divided by √n"
    return {**head, **asdict(check), "paths": paths, "compared": compared}


def _local_model(model: Model) -> LocalModel | None:
    """Return the causal model that this process alone computes, None for any other model."""
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel, SharedModel

    # A model of a folder wraps the one that computes.
    local = model.local if isinstance(model, FolderModel) else model
    # Other ranks of a shared model would wait for this one.
    if isinstance(local, SharedModel) or not isinstance(local, LocalModel):
        return None
    return local


def measure_twins(model: Model, other: Model, file: Path | None) -> dict[str, Any]:
    """Return KL(model ‖ other) in nats a token, and the share of tokens with the same likeliest
    one.

    They are means over all tokens after the first of each text, and their errors are those of
    ratios over texts. ``file``: texts, one a line; None for the bundled questions,
    :data:`_QUESTIONS` of each subject. Raises ModelError for models that are not causal ones on
    this machine, or whose tokens differ.
    """
    import numpy as np

    from choicewise.models.local.selfcheck import text_divergence
    from choicewise.scoring.significance import lost_per_token

    left = _local_model(model)
    right = _local_model(other)
    if left is None or right is None:
        raise ModelError(
            "--against needs two causal models on this machine; for others, run both and "
            "use `choicewise compare`"
        )
    if model.tokenizer.digest != other.tokenizer.digest or left.vocabulary != right.vocabulary:
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
    tokens = np.array([divergence.tokens for divergence in divergences])
    nats = np.array([divergence.nats for divergence in divergences])
    agreeing = np.array([divergence.alike for divergence in divergences], dtype=np.float64)
    # Every text is an item of its own, against nothing.
    offsets = np.arange(len(texts) + 1)
    chosen = np.ones(len(texts), dtype=np.bool_)
    nothing = np.zeros(len(texts))
    return {
        "model": model.name,
        "against": other.name,
        "texts": len(texts),
        "cut": sum(len(ids) > longest for ids in encoded),
        "tokens": int(tokens.sum()),
        "divergence": lost_per_token(nats, nothing, tokens, offsets, chosen),
        "same_likeliest": lost_per_token(agreeing, nothing, tokens, offsets, chosen),
    }


_QUESTIONS = 16
"""Bundled questions of each subject that two models are compared on."""


def _texts(file: Path | None) -> list[str]:
    if file is not None:
        try:
            return [line for line in read_text(file).splitlines() if line.strip()]
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
    for item in open_dataset(BENCHMARK).splits["test"]:
        text = "\n".join([item.question, *item.choices])
        by_subject.setdefault(item.subject, []).append(text)
    texts: list[str] = []
    for texts_of_subject in by_subject.values():
        texts += texts_of_subject[:_QUESTIONS]
    return texts


def _twin_lines(measured: dict[str, Any]) -> list[str]:
    from choicewise.report.tables import nats
    from choicewise.util.text import counted, interval, percent, safe

    same = measured["same_likeliest"]
    share = f"{percent(same.value)} % [{interval(same.ci_low, same.ci_high)}]"
    cut = ""
    if measured["cut"]:
        cut = f", {measured['cut']:,} of them cut to the window"
    return [
        f"A  {safe(measured['model'])}",
        f"B  {safe(measured['against'])}",
        (
            f"KL(A‖B)  {nats(measured['divergence'])} nats per token, over "
            f"{measured['tokens']:,} tokens of {counted(measured['texts'], 'text')}{cut}"
        ),
        f"same most likely next token after {share} of them",
    ]


def _tables(noise: dict[str, Any]) -> list[Table]:
    """Return the paths that were tried, and what other ways of running the model would change."""
    unit = (
        f"Noise of a token's log-probability: {noise['noise']:.2g} nats; for n tokens √n "
        "times as much. Reports count items closer than twice that as near ties."
    )
    trials = _trial_table(
        "path",
        (
            f"{noise['model']}, {noise['dtype']} on {noise['device']}: a run takes the path "
            f"{noise['rung']!r}, {noise['cost']}"
        ),
        noise["trials"],
        (
            f"{noise['compared']}; sequences up to {noise['depth']} tokens. Up to "
            f"{noise['tolerance']:.2g} nats are allowed."
        ),
    )
    if not noise["paths"]:
        trials = replace(trials, notes=[*trials.notes, "", unit])
        return [trials]
    paths = [(path["path"], path["difference"], path["failed"] or "") for path in noise["paths"]]
    ways = Table(
        name="ways",
        title="largest change if the model ran another way",
        columns=_noise_columns("way of running the model"),
        rows=paths,
        notes=[unit],
    )
    return [trials, ways]


def _trial_table(name: str, title: str, trials: list[dict[str, Any]], note: str) -> Table:
    rows = []
    for trial in trials:
        remark = f"refused: {trial['refused']}" if trial["refused"] else "taken"
        rows.append((trial["rung"], trial["difference"], remark))
    return Table(name="trials", title=title, columns=_noise_columns(name), rows=rows, notes=[note])


def _noise_columns(name: str) -> list[Column]:
    return [
        Column(name),
        Column("nats", "size"),
        Column("remark", heading=" "),
    ]


def measure_server(model: Model) -> dict[str, Any]:
    """Return what the probe measured: the server, the routes that were tried, noise (nats a token),
    and protocols.
    """
    from choicewise.protocols.readings import supported_readings
    from choicewise.running.servable import plausible, servable
    from choicewise.running.work import served_model

    likely = plausible(model)
    served = served_model(model)
    check = model.selfcheck
    judged = servable(model)
    # A model behind a server has both.
    assert served is not None
    assert check is not None
    return {
        "model": model.name,
        "server": asdict(served.record),
        "window": model.window,
        "takes": served.takes,
        "front": None if served.front is None else [*served.front],
        "plausible": {**asdict(likely), "text": likely.text},
        "readings": supported_readings(model.supports),
        **asdict(check),
        "notes": [*served.notes],
        "protocols": asdict(judged),
    }


def show_server(measured: dict[str, Any]) -> None:
    """Print what :func:`measure_server` measured."""
    facts = _server_facts(measured)
    width = max(map(len, facts))
    show(*(f"{name:<{width}}  {value}" for name, value in facts.items()), "")
    if not measured["server"]["endpoint"]:
        ways = _trial_table(
            "route",
            "routes that were tried, best first",
            measured["trials"],
            (
                "nats: largest difference of a token's log-probability from the same token "
                "in two parts, in a batch, repeated, or as a next token. Up to "
                f"{measured['tolerance']:.2g} nats are allowed. Noise of a token: "
                f"{measured['noise']:.2g} nats; for n tokens √n times as much. Reports count "
                "items closer than twice that as near ties."
            ),
        )
        print_parts([ways])
    readings = ", ".join(measured["readings"]) or "none"
    show(f"readings of {measured['model']}: {readings}")
    print_parts([_protocol_table(measured["protocols"])])
    tell(*(f"note: {note}" for note in measured["notes"]))


def _server_facts(measured: dict[str, Any]) -> dict[str, str]:
    server = measured["server"]
    name = server["model"]
    if server["root"]:
        name += f", from {server['root']}"
    if server["named"]:
        name += f", called {server['named']} in its answers"
    window = f"{measured['window']:,} input tokens"
    if measured["takes"]:
        window += f" of the {measured['takes']:,} that the server allows for input and output"
    software = server["software"] or "the server does not name it"
    route = server["route"] or "none: no route gives right numbers"
    endpoint = server["endpoint"]
    if endpoint:
        # An endpoint has neither tokens nor a window.
        difference = f"{measured['difference']:.2g} when repeated"
        return {
            "server": software,
            "model": name,
            "asked by": route,
            "answers": f"a probability of the probe differs by {difference}",
            "long states": "; ".join(endpoint["doubts"]) or "their end is read",
        }
    return {
        "server": software,
        "model": name,
        "tokenizer": f"{server['tokenizer']}: {_agreement(measured['front'])}",
        "window": window,
        "plausible": measured["plausible"]["text"],
        "asked by": route,
    }


def _protocol_table(protocols: dict[str, Any]) -> Table:
    from choicewise.results.run import by_reason

    rows = [("served", len(protocols["served"]), _some(protocols["served"]))]
    for reason, names in by_reason(protocols["refused"]).items():
        rows.append(("refused", len(names), f"{reason}: {_some(names)}"))
    if protocols["chats"]:
        chats = protocols["chats"]
        rows.append(("of these, served with --chat message", len(chats), _some(chats)))
    if protocols["untried"]:
        remark = "they need another form of question; a run names it"
        rows.append(("not tried", len(protocols["untried"]), remark))
    columns = [
        Column("protocols of the catalogue"),
        Column("count", "count", heading=" "),
        Column("names", heading=" "),
    ]
    return Table(name="protocols", title="", columns=columns, rows=rows)


def _agreement(front: list[int] | None) -> str:
    if front is None:
        return "the server does not tell how it tokenizes texts"
    tokens = f"tokens {front}" if front else "nothing"
    return f"agrees with the server, which puts {tokens} before a text"


def _some(names: Sequence[str]) -> str:
    entries = list(dict.fromkeys(name.partition(":")[0] for name in names))
    text = ", ".join(entries[:6])
    if len(entries) > 6:
        text += f" and {len(entries) - 6} more entries"
    return text


@grouped
def score(
    *,
    model: options.ModelName,
    context: Annotated[
        str, typer.Option("--context", help="The text before the choices, used exactly as given.")
    ],
    choice: Annotated[
        list[str],
        typer.Option("--choice", help="A continuation, including its leading space. Repeatable."),
    ],
    reading: Annotated[
        str | None,
        typer.Option(
            "--reading",
            help="How to score: loglikelihood, pseudo-loglikelihood, "
            "pseudo-loglikelihood-within-word or encoder-decoder (default: the first that "
            "the model supports).",
        ),
    ] = None,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary",
            help="Which tokens count: joint, moved-space, separate, count, lcp (default), "
            "last-token, heal, word, bytes. Masked models take lcp or count, "
            "encoder-decoders separate.",
        ),
    ] = None,
    premise: Annotated[
        str | None,
        typer.Option(
            "--premise",
            help="A text that names the domain without the question, such as ' the answer is:' "
            "(for dc_pmi and domain_conditional).",
        ),
    ] = None,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Score each choice as a continuation of the context; log-probabilities in nats."""
    language_model = loading.load(model)
    from choicewise.running.score_texts import score_texts

    table = score_texts(
        language_model, context, choice, reading=reading, boundary=boundary, premise=premise
    )
    if json:
        print_json(table.to_pylist())
        return
    rows = table.to_pylist()
    columns = [Column("score", heading=" ")]
    for index, row in enumerate(rows):
        columns.append(Column(f"choice {index}", "score", heading=repr(row["choice"])))
    cells = []
    for name in table.column_names[1:]:
        cells.append([name, *(row[name] for row in rows)])
    print_parts([Table(name="scores", title="", columns=columns, rows=cells, split=1)])
