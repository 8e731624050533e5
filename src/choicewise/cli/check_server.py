"""What ``choicewise check`` shows of a model behind a server: what was probed, what came out, what follows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from choicewise.cli.output import print_parts, show, tell

if TYPE_CHECKING:
    from choicewise.models.model import Model


def measure_server(model: Model) -> dict[str, Any]:
    """What the probe measured: the server, each way of asking that was tried, noise (nats a token), and protocols."""
    from choicewise.protocols.readings import supported_readings
    from choicewise.running.plausible import plausible
    from choicewise.running.servable import servable
    from choicewise.running.served import served_model

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
    """The same as tables."""
    from choicewise.report.table import table, titled
    from choicewise.report.visible_text import safe
    from choicewise.results.refused import by_reason

    server, protocols = measured["server"], measured["protocols"]
    facts = {
        "server": server["software"] or "it does not say what it is",
        "model": server["model"]
        + (f", from {server['root']}" if server["root"] else "")
        + (f", which its answers call {server['named']}" if server["named"] else ""),
        "tokenizer": f"{server['tokenizer']}: {_agreement(measured['front'])}",
        "window": f"{measured['window']:,} input tokens"
        + (f", of {takes:,} that the server takes with what it generates" if (takes := measured["takes"]) else ""),
        "plausible": measured["plausible"]["text"],
        "asked by": server["route"] or "nothing: no way of asking gives right numbers",
    }
    width = max(map(len, facts))
    show(*(f"{name:<{width}}  {value}" for name, value in facts.items()), "")
    ways = table("way of asking", "nats")
    ways.add_column("", overflow="fold")
    for trial in measured["trials"]:
        apart = "-" if trial["difference"] is None else f"{trial['difference']:.2g}"
        ways.add_row(safe(trial["rung"]), apart, safe(f"refused: {trial['refused']}" if trial["refused"] else "taken"))
    print_parts(
        [
            titled(
                "ways of asking that were tried, best first",
                ways,
                "nats: how far log-probabilities of tokens are, at most, from those asked for otherwise: in two parts, "
                f"among others, again, and as next tokens; {measured['tolerance']:.2g} are allowed. Noise of a token: "
                f"{measured['noise']:.2g} nats; reports count items closer than twice that, for n tokens √n times it, "
                "as near ties",
            )
        ]
    )
    show(f"readings that {measured['model']} can be asked with: {', '.join(measured['readings']) or 'none'}")
    counts = table("protocols of the catalogue", "")
    counts.add_column("", overflow="fold")
    counts.add_row("served", str(len(protocols["served"])), _some(protocols["served"]))
    for reason, names in by_reason(protocols["refused"]).items():
        counts.add_row("refused", str(len(names)), safe(f"{reason}: {_some(names)}"))
    if protocols["chats"]:
        number = str(len(protocols["chats"]))
        counts.add_row("of these, served with --chat message", number, _some(protocols["chats"]))
    if protocols["untried"]:
        counts.add_row(
            "not tried", str(len(protocols["untried"])), "they need questions of another form; a run says it"
        )
    print_parts([counts])
    tell(*(f"note: {note}" for note in measured["notes"]))


def _agreement(front: list[int] | None) -> str:
    if front is None:
        return "the server does not say how it encodes texts"
    return f"its tokens are the server's, which puts {f'tokens {front}' if front else 'nothing'} before a text"


def _some(names: list[str] | tuple[str, ...]) -> str:
    entries = list(dict.fromkeys(name.partition(":")[0] for name in names))
    return ", ".join(entries[:6]) + (f" and {len(entries) - 6} more entries" if len(entries) > 6 else "")
