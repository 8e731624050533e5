"""Show what a check of a model behind a server measured, for ``choicewise check``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from choicewise.extensions.endpoints.check import plausible, servable
from choicewise.models.model import Model
from choicewise.protocols.readings import supported_readings
from choicewise.report.tables import trial_table
from choicewise.results.run import by_reason
from choicewise.running.work import served_model
from choicewise.table import Column, Table
from choicewise.util.jsonio import JsonDict


def examine(model: Model) -> tuple[JsonDict, list[str | Table]]:
    """Return what the probe measured of ``model``, and the lines and tables that show it.

    The server, the routes that were tried, noise (nats a token), and protocols.
    """
    measured = _measured(model)
    facts = _server_facts(measured)
    width = max(map(len, facts))
    parts: list[str | Table] = [f"{name:<{width}}  {value}" for name, value in facts.items()]
    parts.append("")
    if not measured["server"]["endpoint"]:
        note = (
            "nats: largest difference of a token's log-probability from the same token "
            "in two parts, in a batch, repeated, or as a next token. Up to "
            f"{measured['tolerance']:.2g} nats are allowed. Noise of a token: "
            f"{measured['noise']:.2g} nats; for n tokens √n times as much. Reports count "
            "items closer than twice that as near ties."
        )
        title = "routes that were tried, best first"
        parts.append(trial_table("route", title, measured["trials"], note))
    readings = ", ".join(measured["readings"]) or "none"
    parts.append(f"readings of {measured['model']}: {readings}")
    parts.append(_protocol_table(measured["protocols"]))
    return measured, parts


def _measured(model: Model) -> JsonDict:
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


def _server_facts(measured: JsonDict) -> dict[str, str]:
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
    front = measured["front"]
    agreement = "the server does not return its tokens of a text"
    if front is not None:
        tokens = f"tokens {front}" if front else "nothing"
        agreement = f"agrees with the server, which puts {tokens} before a text"
    return {
        "server": software,
        "model": name,
        "tokenizer": f"{server['tokenizer']}: {agreement}",
        "window": window,
        "plausible": measured["plausible"]["text"],
        "asked by": route,
    }


def _protocol_table(protocols: JsonDict) -> Table:
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


def _some(names: Sequence[str]) -> str:
    entries = list(dict.fromkeys(name.partition(":")[0] for name in names))
    text = ", ".join(entries[:6])
    if len(entries) > 6:
        text += f" and {len(entries) - 6} more entries"
    return text
