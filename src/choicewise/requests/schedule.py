"""What a run has to do: which ways of asking, and whether items and model allow them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.boundary import CORRECTED
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import CORRECTION_NEEDS, READINGS
from choicewise.protocols.shots import sample
from choicewise.requests.problems import Problems
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.source import RequestSource, TemplateSource
from choicewise.tokens.chat_template import ChatTemplate


@dataclass(frozen=True)
class Ask:
    """One way of asking about every item: a protocol's request, or its continuations after a null context.

    ``ranked``: a protocol that shares it scores by how many tokens are likelier.
    """

    protocol: Protocol
    null: str | None = None
    ranked: bool = False

    @property
    def name(self) -> str:
        """What the manifest calls it: protocols that share it share the observations."""
        return self.protocol.prompt_digest + ("" if self.null is None else f"|{self.null}")


def with_split(protocol: Protocol, dataset: Dataset) -> Protocol:
    """``protocol`` with a named split: its own, or the one ``dataset`` is evaluated on (DataError if it has none)."""
    return protocol if protocol.split is not None else replace(protocol, split=dataset.evaluated)


def has_shots(data: Dataset, subjects: Sequence[str] | None, protocol: Protocol) -> bool:
    """Whether ``data`` has the rows that the shots of ``protocol`` are drawn from, for all or the named subjects."""
    recipe = with_split(protocol, data)
    try:
        for subject in data.choose(recipe.split or data.evaluated, subjects):
            sample(recipe, data, subject, range(0))
    except DataError:
        return False
    return True


def list_asks(protocols: Mapping[str, Protocol]) -> list[Ask]:
    """Every way of asking that the protocols need, each once."""
    asks = [Ask(each, null) for each in protocols.values() for null in dict.fromkeys((None, each.null))]
    ranked = {ask.name for ask in asks if ask.protocol.outside != "keep"}
    return [replace(ask, ranked=name in ranked) for name, ask in {ask.name: ask for ask in asks}.items()]


def collect_problems(
    problems: Problems,
    data: Dataset,
    asks: Sequence[Ask],
    subject: str,
    items: Sequence[Item],
    rendered: Sequence[RenderedRequests] = (),
    start: int = 0,
) -> None:
    """Add to ``problems`` what rendering would refuse later: too few rows for shots, items with the wrong choices.

    ``items`` begin at position ``start`` of the subject.
    Cheap, and done before the model starts, so that hours of work don't end at a bad row.
    """
    for digest, protocol in {ask.protocol.prompt_digest: ask.protocol for ask in asks}.items():
        problems.add(request_source(protocol, data, rendered).problems(subject, items, start), subject, digest)


def unsupported(protocol: Protocol, model: str, supports: frozenset[type]) -> str | None:
    """Which kinds of question ``protocol`` needs and ``model``, which ``supports`` these, lacks; None where none."""
    needs = READINGS[protocol.reading].needs + (CORRECTION_NEEDS if protocol.boundary in CORRECTED else ())
    lacking = [kind.__name__ for kind in dict.fromkeys(needs) if kind not in supports]
    if not lacking:
        return None
    return f"{model} does not support {' and '.join(lacking)}, which reading {protocol.reading} needs"


def no_chat(protocol: Protocol, model: str, template: ChatTemplate | None) -> str | None:
    """Why ``model`` can't be asked under ``protocol``: a chat that it has no ``template`` for; None where it can."""
    if protocol.chat == "none" or template is not None:
        return None
    return (
        f"{model} has no chat template (chat_template in tokenizer_config.json, or chat_template.jinja), so it is "
        "no chat model, and this is a chat"
    )


def request_source(
    protocol: Protocol, data: Dataset, rendered: Sequence[RenderedRequests], template: ChatTemplate | None = None
) -> RequestSource:
    """Where the requests of ``protocol`` come from; ProtocolError where they were rendered elsewhere and not passed.

    ``template``: of chats, which have no text without it.
    """
    if protocol.requests is None:
        return TemplateSource(protocol, data, template)
    for requests in rendered:
        if requests.digest == protocol.requests:
            return requests
    raise ProtocolError(
        f"the requests {protocol.requests[:12]} of a protocol were rendered elsewhere and are not at hand; "
        "pass them to evaluate(rendered=[...])"
    )
