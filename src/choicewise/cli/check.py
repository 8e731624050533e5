"""Check, score."""

from __future__ import annotations

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
    from choicewise.models.model import Model


@grouped
def check(
    *,
    model: Annotated[str, typer.Option("--model", help="A model folder, or one behind a server.")],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Another model with the same tokens, such as a quantised twin: how far it is.",
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            help="With --against: a file of texts, one a line, in place of the bundled questions.",
        ),
    ] = None,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Measure on this very model by how much ways of computing a score differ, in nats.

    Shows which fast path a run would take and why others were refused. Items whose best two scores are closer than
    the noise of both are shown as near ties in reports. Of a model behind a server: which ways of asking give right
    numbers, and which protocols can be asked.

    With --against, in place of all that: the mean KL divergence of the other model's next-token distribution from
    that of --model, token by token over texts, with its 95 % interval.
    """
    options.refuse_without_use(
        "without --against there is", texts=texts if against is None else None
    )
    loaded = loading.load(model)
    if against is not None:
        measured = measure_twins(loaded, loading.load(against), texts)
        print_json(measured) if json else show(*_twin_lines(measured))
        return
    from choicewise.running.work import served_model

    if served_model(loaded) is not None:
        measured = measure_server(loaded)
        print_json(measured) if json else show_server(measured)
        return
    noise = measure_noise(loaded)
    if json:
        print_json(noise)
    elif not noise["trials"]:
        show(f"{noise['model']} computes the same numbers in one way only: no noise to measure")
    else:
        print_parts(_tables(noise))
        show(f"readings that {noise['model']} can be asked with: {', '.join(noise['readings'])}")


def measure_noise(model: Model) -> dict[str, Any]:
    """The self-check of ``model`` with its noise, and by how much common ways to run it differ (nats)."""
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
    if (check := model.selfcheck) is None:
        return {**head, "rung": None, "noise": None, "trials": [], "paths": []}
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel, SharedModel
    from choicewise.models.local.selfcheck import path_differences

    local = model.local if isinstance(model, FolderModel) else model
    alone = isinstance(local, LocalModel) and not isinstance(
        local, SharedModel
    )  # others would wait for this rank
    differences = path_differences(local.lm) if isinstance(local, LocalModel) and alone else []
    compared = "largest difference from one sequence at a time, of n tokens over √n"
    return {**head, **asdict(check), "paths": [*map(asdict, differences)], "compared": compared}


def measure_twins(model: Model, other: Model, file: Path | None) -> dict[str, Any]:
    """KL(model ‖ other) in nats a token, and the share of tokens with the same likeliest one; means over all tokens
    after the first of each text, whose errors are those of ratios over texts.

    ``file``: texts, one a line; None for the bundled questions, :data:`_QUESTIONS` of each subject.  Raises ModelError
    for models that are not causal ones on this machine, or whose tokens differ.
    """
    import numpy as np

    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel, SharedModel
    from choicewise.models.local.selfcheck import text_divergence
    from choicewise.scoring.significance import lost_per_token

    networks = [each.local if isinstance(each, FolderModel) else each for each in (model, other)]
    left, right = (each if isinstance(each, LocalModel) else None for each in networks)
    if (
        left is None
        or right is None
        or isinstance(left, SharedModel)
        or isinstance(right, SharedModel)
    ):
        raise ModelError(
            "--against compares two causal models that this process computes itself; of others run both and "
            "`choicewise compare` the runs"
        )
    if model.tokenizer.digest != other.tokenizer.digest or left.vocabulary != right.vocabulary:
        raise ModelError(
            f"{model.name} and {other.name} have other tokens, so their distributions are about different things; "
            "name a twin with the same tokenizer and vocabulary"
        )
    longest = min(model.window, other.window) + 1
    encoded = model.tokenizer.encode(_texts(file), special=True)
    kept = [ids[:longest] for ids in encoded if len(ids) > 1]
    if not kept:
        raise DataError(f"{file} holds no text of two tokens; write one text a line")
    each = [text_divergence(left.lm, right.lm, ids) for ids in kept]
    tokens = np.array([one.tokens for one in each])
    offsets, every, nothing = (
        np.arange(len(each) + 1),
        np.ones(len(each), dtype=np.bool_),
        np.zeros(len(each)),
    )
    means = {
        "divergence": np.array([one.nats for one in each]),
        "same_likeliest": np.array([one.alike for one in each], dtype=np.float64),
    }
    return {
        "model": model.name,
        "against": other.name,
        "texts": len(each),
        "cut": sum(len(ids) > longest for ids in encoded),
        "tokens": int(tokens.sum()),
        **{
            name: lost_per_token(sums, nothing, tokens, offsets, every)
            for name, sums in means.items()
        },
    }


_QUESTIONS = 16
"""Bundled questions of each subject that two models are compared on."""


def _texts(file: Path | None) -> list[str]:
    if file is not None:
        try:
            return [line for line in read_text(file).splitlines() if line.strip()]
        except OSError as error:
            raise DataError(
                f"{file} can't be read: {error.strerror}; name a file with one text a line"
            ) from error
        except UnicodeDecodeError as error:
            raise DataError(
                f"{file} is no text in UTF-8: {error.reason}; write one text a line"
            ) from error
    from choicewise.bundled import BENCHMARK
    from choicewise.data.open import open_dataset

    by_subject: dict[str, list[str]] = {}
    for item in open_dataset(BENCHMARK).splits["test"]:
        by_subject.setdefault(item.subject, []).append("\n".join([item.question, *item.choices]))
    return [text for own in by_subject.values() for text in own[:_QUESTIONS]]


def _twin_lines(measured: dict[str, Any]) -> list[str]:
    from choicewise.report.tables import nats
    from choicewise.util.text import counted, interval, percent, safe

    alike, cut = measured["same_likeliest"], measured["cut"]
    share = f"{percent(alike.value)} % [{interval(alike.ci_low, alike.ci_high)}]"
    return [
        f"A  {safe(measured['model'])}",
        f"B  {safe(measured['against'])}",
        f"KL(A‖B)  {nats(measured['divergence'])} nats a token, over {measured['tokens']:,} tokens of "
        f"{counted(measured['texts'], 'text')}"
        + (f", {cut:,} of them cut to the window" if cut else ""),
        f"the likeliest next token is the same after {share} of them",
    ]


def _tables(noise: dict[str, Any]) -> list[Table]:
    """Return the paths that were tried, and what other ways of running the model would change."""
    unit = (
        f"noise of a token's log-probability: {noise['noise']:.2g} nats, of n tokens √n times that;"
        " reports count items closer than twice that as near ties"
    )
    trials = _trial_table(
        "path",
        f"{noise['model']}, {noise['dtype']} on {noise['device']}: a run takes the path {noise['rung']!r},"
        f" {noise['cost']}",
        noise["trials"],
        f"{noise['compared']}, on sequences up to {noise['depth']} tokens;"
        f" up to {noise['tolerance']:.2g} nats are allowed",
    )
    if not noise["paths"]:
        trials = replace(trials, notes=[*trials.notes, "", unit])
        return [trials]
    paths = [(path["path"], path["difference"], path["failed"] or "") for path in noise["paths"]]
    ways = Table(
        name="ways",
        title="what other ways of running it would change, at most",
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
        Column(name=name),
        Column(name="nats", kind="size"),
        Column(name="remark", heading=" "),
    ]


def measure_server(model: Model) -> dict[str, Any]:
    """What the probe measured: the server, each way of asking that was tried, noise (nats a token), and protocols."""
    from choicewise.protocols.readings import supported_readings
    from choicewise.running.servable import plausible, servable
    from choicewise.running.work import served_model

    likely = plausible(model)
    served, check, judged = served_model(model), model.selfcheck, servable(model)
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
            "way of asking",
            "ways of asking that were tried, best first",
            measured["trials"],
            "nats: how far log-probabilities of tokens are, at most, from those asked for otherwise: in two parts, "
            f"among others, again, and as next tokens; {measured['tolerance']:.2g} are allowed. Noise of a token: "
            f"{measured['noise']:.2g} nats; reports count items closer than twice that, for n tokens √n times it, "
            "as near ties",
        )
        print_parts([ways])
    readings = ", ".join(measured["readings"]) or "none"
    show(f"readings that {measured['model']} can be asked with: {readings}")
    print_parts([_protocol_table(measured["protocols"])])
    tell(*(f"note: {note}" for note in measured["notes"]))


def _server_facts(measured: dict[str, Any]) -> dict[str, str]:
    server = measured["server"]
    name = server["model"]
    if server["root"]:
        name += f", from {server['root']}"
    if server["named"]:
        name += f", which its answers call {server['named']}"
    window = f"{measured['window']:,} input tokens"
    if measured["takes"]:
        window += f", of {measured['takes']:,} that the server takes with what it generates"
    software = server["software"] or "it does not say what it is"
    route = server["route"] or "nothing: no way of asking gives right numbers"
    endpoint = server["endpoint"]
    if endpoint:
        # An endpoint has neither tokens nor a window.
        difference = f"{measured['difference']:.2g} when it is asked again"
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
        remark = "they need questions of another form; a run says it"
        rows.append(("not tried", len(protocols["untried"]), remark))
    columns = [
        Column(name="protocols of the catalogue"),
        Column(name="count", heading=" ", kind="count"),
        Column(name="names", heading=" "),
    ]
    return Table(name="protocols", title="", columns=columns, rows=rows)


def _agreement(front: list[int] | None) -> str:
    if front is None:
        return "the server does not say how it encodes texts"
    return f"its tokens are the server's, which puts {f'tokens {front}' if front else 'nothing'} before a text"


def _some(names: list[str] | tuple[str, ...]) -> str:
    entries = list(dict.fromkeys(name.partition(":")[0] for name in names))
    return ", ".join(entries[:6]) + (
        f" and {len(entries) - 6} more entries" if len(entries) > 6 else ""
    )


@grouped
def score(
    *,
    model: options.ModelName,
    context: Annotated[
        str, typer.Option("--context", help="The text before the choices, as it stands.")
    ],
    choice: Annotated[
        list[str],
        typer.Option("--choice", help="A continuation, its leading space included. Repeatable."),
    ],
    reading: Annotated[
        str | None,
        typer.Option(
            "--reading",
            help="loglikelihood; for a masked model pseudo-loglikelihood or pseudo-loglikelihood-within-word; for an "
            "encoder-decoder encoder-decoder. By default the first that the model can be asked with.",
        ),
    ] = None,
    boundary: Annotated[
        str | None,
        typer.Option(
            "--boundary",
            help="Which tokens are scored: joint, moved-space, separate, count, lcp (by default), last-token, heal, "
            "word, bytes. A masked model takes lcp or count, an encoder-decoder separate.",
        ),
    ] = None,
    premise: Annotated[
        str | None,
        typer.Option(
            "--premise",
            help="A text that names the domain and not the question, such as ' the answer is:'; dc_pmi and "
            "domain_conditional need it.",
        ),
    ] = None,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Score each choice, as it stands, as a continuation of the context; log-probabilities in nats."""
    language_model = loading.load(model)
    from choicewise.running.score_texts import score_texts

    table = score_texts(
        language_model, context, choice, reading=reading, boundary=boundary, premise=premise
    )
    if json:
        print_json(table.to_pylist())
        return
    rows = table.to_pylist()
    columns = [Column(name="score", heading=" ")]
    for index, row in enumerate(rows):
        columns.append(Column(name=f"choice {index}", heading=repr(row["choice"]), kind="score"))
    cells = []
    for name in table.column_names[1:]:
        cells.append([name, *(row[name] for row in rows)])
    print_parts([Table(name="scores", title="", columns=columns, rows=cells, split=1)])
