"""Print requests as JSON lines: ``choicewise prompts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import Part, Tasks, grouped
from choicewise.cli.terminal import print_json, show_download, tell
from choicewise.errors import DataError, ModelError, ProtocolError, UsageError
from choicewise.util.text import counted

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.protocols.protocol import Protocol, Protocols
    from choicewise.requests.render import RenderedRequests
    from choicewise.running.job import Job
    from choicewise.tokens.chat_template import ChatTemplate


@grouped
def prompts(
    *,
    protocol: options.Protocols,
    data: options.Data = None,
    shots: options.Shots = None,
    part: Part,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="The model whose chat template is applied (chats only). Without a model, a "
            "chat of one message is printed as it is.",
        ),
    ] = None,
    tokenizer: options.Tokenizer = None,
    tasks: Tasks,
) -> None:
    """Print each request as a JSON line: item, subject, context, continuations, gold, protocol.

    If choices have different contexts, `contexts` replaces `context`, in the order of
    `continuations`. If a choice has several texts, `choices` has the choice of each text. Contexts
    are complete: only `run` cuts them to a model's window. Without --data, the benchmarks' own data
    are used.
    """
    from choicewise.running.job import job_of, open_source

    given = {**part.given, **part.data(data), **tasks.given}
    job = job_of({"protocols": protocol, "shots": options.shots_of(shots), **given})
    sources = options.sources_of(job)
    if len(sources) > 1:
        options.refuse_without_use(
            "several benchmarks, which have different subjects", subject=part.subject
        )
    recipes: dict[str, Protocol] = {}
    for source in sources:
        recipes |= source.recipes
    # Requests need no model, but a chat has no text without its template.
    template = _chat_template(recipes, model, tokenizer)
    for source in sources:
        opened = open_source(source, job, show_download(), measured=False)
        tell(*opened.left_out_lines)
        options.tell_reading(opened.data, source.notes, opened.changes)
        _print(opened.data, opened.protocols, source.rendered, job, template)


def _print(
    dataset: Dataset,
    named: Protocols,
    rendered: Sequence[RenderedRequests],
    job: Job,
    template: ChatTemplate | None,
) -> None:
    """Print every request about ``dataset`` once.

    Tell how many items are left out if bad ones are skipped.
    """
    from choicewise.requests.blocks import settle_sample, with_split

    recipes = {name: with_split(recipe, dataset) for name, recipe in named.items()}
    _, note = settle_sample(dataset, recipes, job.selection)
    if note:
        tell(f"note: {note}")
    printed = set()
    left_out: dict[str, list[str]] = {}
    for name, recipe in recipes.items():
        # An earlier protocol may have the same requests.
        if recipe.prompt_digest in printed:
            continue
        printed.add(recipe.prompt_digest)
        try:
            reasons = _print_requests(dataset, name, recipe, rendered, job, template)
        except (DataError, ProtocolError) as error:
            raise error.within(name) from error
        if reasons:
            left_out[name] = reasons
    for name, reasons in left_out.items():
        tell(f"note: {name} leaves out {counted(len(reasons), 'item')}: {reasons[0]}")


def _print_requests(
    dataset: Dataset,
    name: str,
    recipe: Protocol,
    rendered: Sequence[RenderedRequests],
    job: Job,
    template: ChatTemplate | None,
) -> list[str]:
    """Print the requests of one protocol; return why items have none."""
    from choicewise.requests.blocks import list_sections, request_source
    from choicewise.requests.render import Refusal, rendered_line

    reasons = []
    source = request_source(recipe, dataset, rendered, template)
    for section in list_sections(dataset, {name: recipe}, job.selection):
        positions = section.positions(0, len(section.items))
        for request in source.requests(section.subject, section.items, positions):
            if isinstance(request, Refusal):
                if job.on_bad_item == "error":
                    raise request.reason
                reasons.append(request.reason.message)
                continue
            try:
                line = rendered_line(request, recipe.reading)
            except DataError as reason:
                # A run has it as a missing item, whatever becomes of bad ones.
                reasons.append(reason.message)
                continue
            print_json({**line, "protocol": name}, indent=None)
    return reasons


def _message_alone(chats: Protocols) -> ChatTemplate:
    """Return a template for chats of one message without a model.

    UsageError for a chat of several messages.
    """
    from choicewise.protocols.protocol import begins
    from choicewise.tokens.chat_template import MessageAlone

    for name, recipe in chats.items():
        if recipe.chat != "message" or recipe.header or recipe.system is not None or begins(recipe):
            raise UsageError(
                f"{name} is a chat, so its text depends on the model's chat template; add "
                "--model MODEL"
            )
    tell(
        f"note: {next(iter(chats))} is a chat; printed without a chat template. Add "
        "--model MODEL to apply one"
    )
    return MessageAlone()


def _chat_template(
    recipes: Protocols, model: str | None, tokenizer: str | None
) -> ChatTemplate | None:
    """Return the chat template of ``model`` if a protocol needs one."""
    chats = {name: recipe for name, recipe in recipes.items() if recipe.chat != "none"}
    if not chats:
        options.refuse_without_use("protocols without a chat", model=model, tokenizer=tokenizer)
        return None
    if model is None:
        return _message_alone(chats)
    from choicewise.models.load import load_model
    from choicewise.requests.blocks import no_chat

    options.refuse_foreign(model, tokenizer=tokenizer)
    loaded = load_model(model, progress=show_download(), say=tell, tokenizer=tokenizer)
    template = loaded.tokenizer.chat
    name, recipe = next(iter(chats.items()))
    reason = no_chat(recipe, model, template)
    if reason:
        raise ModelError(
            f"{name}: {reason}; leave the chat out, or use a model with a chat template"
        )
    return template
