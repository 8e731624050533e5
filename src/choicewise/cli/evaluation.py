"""A model, the data and what is asked of it, as the options of a command name them, and the run that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choicewise.cli import options
from choicewise.cli.download import show_download
from choicewise.cli.output import tell
from choicewise.cli.progress import progress
from choicewise.cli.typed import typed_words
from choicewise.interchange.tasks.selector import split_tasks

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.models.model import Model
    from choicewise.protocols.path import Possible
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.run import Run
    from choicewise.running.executors.parallel import Parallel
    from choicewise.running.open_sources import Chosen
    from choicewise.running.source import Source
    from choicewise.running.sweep_model import SweepModel


@dataclass(frozen=True)
class Evaluation:
    """The options of a command that evaluates, by their names."""

    model: str
    data: Path | None
    subject: list[str] | None
    limit: int | None
    on_bad_item: options.OnBadItem
    mapping: Path | None
    dtype: options.Dtype | None
    device: str | None
    window: int | None
    batch_tokens: int | None
    chat: options.ChatForm | None = None
    system: str | None = None
    adapter: Path | None = None
    include_path: list[Path] | None = None
    allow_task_code: bool = False
    tokenizer: str | None = None
    executor: options.Kind = options.Kind.local
    workers: int | None = None

    @property
    def parallel(self) -> Parallel:
        """How the work is spread."""
        from choicewise.running.executors.parallel import Parallel

        return Parallel(str(self.executor), self.workers)

    def refuse_foreign(self, **more: object) -> None:
        """UsageError for options that this kind of model has no use for; ``more``: of local models, beside these."""
        local = {name: getattr(self, name) for name in ("dtype", "device", "batch_tokens", "adapter")}
        if self.model.startswith("server:"):
            local |= spread(self.executor, self.workers)
        options.refuse_foreign(self.model, self.tokenizer, self.window, **local, **more)

    @property
    def command(self) -> tuple[str, ...]:
        """The words that say the same in the command line of a run that goes on."""
        given = {"--model": self.model, "--data": self.data, "--limit": self.limit, "--mapping": self.mapping}
        given |= {"--dtype": self.dtype, "--device": self.device, "--window": self.window, "--adapter": self.adapter}
        given |= {"--tokenizer": self.tokenizer}
        given |= {"--on-bad-item": self.on_bad_item} if self.on_bad_item == options.OnBadItem.skip else {}
        words = [(name, _word(value)) for name, value in given.items() if value is not None]
        words += [("--subject", subject) for subject in self.subject or ()]
        words += [("--include-path", _word(folder)) for folder in self.include_path or ()]
        flags = ("--allow-task-code",) if self.allow_task_code else ()
        return (*(word for pair in words for word in pair), *flags)

    @property
    def chosen(self) -> dict[str, Any]:
        """The part of the data that is asked, as evaluate and plan take it."""
        skip = self.on_bad_item == options.OnBadItem.skip
        return {"subjects": self.subject, "limit": self.limit, "skip_bad_items": skip}

    @property
    def part(self) -> Chosen:
        """The same as several runs take it."""
        from choicewise.running.open_sources import Chosen

        return Chosen(None if self.subject is None else tuple(self.subject), *[*self.chosen.values()][1:])

    def resolve(self, selectors: Sequence[str]) -> dict[str, Protocol]:
        """The protocols of the selectors, but for those of harness tasks, as they are asked; errors as of each.

        What is wrong with them is said before any data are opened.
        """
        from choicewise.protocols.catalogue import resolve

        tasks, others = split_tasks(selectors)
        if tasks:
            chat = {"chat": self.chat, "system": self.system}
            options.refuse_without_use(f"{tasks[0]} is asked as the harness asks without a chat and has", **chat)
        return self.chats(resolve(*others))

    def chats(self, recipes: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as they are asked: in a chat where that is wanted."""
        from choicewise.protocols.chat import in_chat

        return in_chat(recipes, self.chat, self.system)

    def sources(self, selectors: Sequence[str]) -> list[Source]:
        """Where the questions come from, as :func:`sources_of`."""
        given = self.data, self.mapping, self.on_bad_item, self.subject, self.include_path, self.allow_task_code
        return sources_of(selectors, *given)

    def open(
        self, source: Source, resolve: Callable[[Possible], dict[str, Protocol]] | None = None
    ) -> tuple[Dataset, dict[str, Protocol]]:
        """The dataset of ``source``, and what it is asked under, or what ``resolve`` gives of all that has shots."""
        from choicewise.requests.schedule import has_shots

        dataset = source.open(show_download())
        if resolve is None:
            named = source.protocols(dataset, self.subject)
        else:
            named = resolve(partial(has_shots, dataset, self.subject))
        recipes = self.chats(named)
        tell_notes(dataset, recipes, self.subject, self.limit, source.notes)
        return dataset, recipes

    @property
    def planned(self) -> SweepModel:
        """The model, as several runs take it."""
        from choicewise.running.sweep_model import SweepModel

        names = ("dtype", "device", "window", "batch_tokens", "adapter", "tokenizer")
        local = {name: getattr(self, name) for name in names}
        named = {name: value for name, value in local.items() if value is not None}
        given = {name: value if isinstance(value, int) else str(value) for name, value in named.items()}
        chat = None if self.chat is None else str(self.chat)
        return SweepModel(self.model, given, chat, self.system)

    def load(self, dtype: str | None = None) -> Model:
        """The model, in another arithmetic if ``dtype`` names one."""
        from choicewise.models.load import load_model

        local: dict[str, Any] = {"window": self.window, "batch_tokens": self.batch_tokens}
        local |= self.parallel.loading(self.device)
        local |= {"adapter": self.adapter, "tokenizer": self.tokenizer, "progress": show_download(), "say": tell}
        model = load_model(self.model, dtype=dtype or self.dtype, **local)
        tell_other_base(self.model, self.adapter)
        tell_server(model)
        return model

    def into(self, out: Path, model: Model, dataset: Dataset, recipes: Mapping[str, Protocol], **more: Any) -> Run:
        """The run in folder ``out``; ``more``: as evaluate takes it."""
        from choicewise.running.evaluate import evaluate

        _tell_system_texts(model, recipes)
        chosen = self.chosen | more | {"command": self.command, "typed": typed_words.get()}
        chosen |= {"executor": str(self.executor), "workers": self.workers}
        with progress(model.name, lambda: model.computed) as report:
            return evaluate(model=model, data=dataset, protocols=recipes, out=out, progress=report, say=tell, **chosen)


def spread(executor: options.Kind, workers: int | None) -> dict[str, object]:
    """The options that spread the work, by name, None where they were not given."""
    return {"executor": None if executor == options.Kind.local else executor, "workers": workers}


def tell_notes(
    dataset: Dataset,
    recipes: Mapping[str, Protocol],
    subject: list[str] | None,
    limit: int | None,
    notes: Sequence[str] = (),
) -> None:
    """What the user should know of the questions, on stderr; ``notes``: what their source says of them."""
    tell(*(f"note: {note}" for note in notes))
    _tell_repeated_choices(dataset, recipes, subject, limit)
    _tell_unused_content(dataset, recipes)


def sources_of(
    selectors: Sequence[str],
    data: Path | None,
    mapping: Path | None,
    on_bad_item: options.OnBadItem,
    subject: list[str] | None,
    include_path: Sequence[Path] | None = None,
    allow_task_code: bool = False,
) -> list[Source]:
    """Where the questions come from that the protocols are asked about: several where they name several benchmarks.

    Raises UsageError for options that do not go together with that.
    """
    from choicewise.data.columns import read_mapping
    from choicewise.running.source import Source, benchmark_sources, refuse_one_dataset

    tasks, selectors = split_tasks(selectors)
    sources: list[Source] = []
    if tasks:
        from choicewise.interchange.tasks.task_source import task_sources

        options.refuse_without_use(f"{tasks[0]} has data of its own and", data=data, mapping=mapping)
        sources += task_sources(tasks, include_path or (), allow_task_code, on_bad_item)
    else:
        own = {"include_path": include_path or None, "allow_task_code": allow_task_code}
        options.refuse_without_use("protocols without a task of the harness (lm-eval:TASK) have", **own)
    if data is not None:
        refuse_one_dataset(selectors)
        columns = None if mapping is None else read_mapping(mapping)
        return [Source(tuple(selectors), None, str(data), columns, on_bad_item)]
    options.refuse_without_use("a benchmark's own data have", mapping=mapping)
    sources += benchmark_sources(selectors, on_bad_item)
    if len(sources) > 1:
        options.refuse_without_use("several benchmarks, with subjects of their own, have", subject=subject)
    return sources


def _tell_repeated_choices(
    dataset: Dataset, recipes: Mapping[str, Protocol], subject: list[str] | None, limit: int | None
) -> None:
    from choicewise.data.item import duplicate_choices
    from choicewise.requests.blocks import list_sections

    sections = list_sections(dataset, recipes, subject, limit)
    repeated = [item.id for section in sections for item in section.items if duplicate_choices(item)]
    if len(repeated) == 1:
        tell(f"note: item {repeated[0]} shows the same choice twice and is kept")
    elif repeated:
        tell(f"note: {len(repeated)} items show the same choice twice and are kept: {repeated[0]}, ...")


def _tell_unused_content(dataset: Dataset, recipes: Mapping[str, Protocol]) -> None:
    from choicewise.data.content import BLANK
    from choicewise.protocols.unused import unused_by

    for content, names in unused_by(recipes, dataset.content).items():
        fields = " and ".join("the blank _ in the questions" if name == BLANK else f"field {name}" for name in content)
        more = f" and {len(names) - 1} more" * (len(names) > 1)
        tell(f"note: {names[0]}{more} leave out what belongs to the questions: {fields}")


def _tell_system_texts(model: Model, recipes: Mapping[str, Protocol]) -> None:
    chats = [name for name, each in recipes.items() if each.chat != "none" and (each.system or each.header)]
    if chats and (template := model.tokenizer.chat) is not None and not template.takes_system:
        more = f" and {len(chats) - 1} more" * (len(chats) > 1)
        tell(f"note: the chat template of {model.name} takes no system text; none is sent under {chats[0]}{more}")


def tell_server(model: Model) -> None:
    """Tell on stderr how the server that ``model`` is behind is asked."""
    from choicewise.running.served import how_asked

    tell(*how_asked(model))


def tell_other_base(model: str, adapter: Path | None) -> None:
    """Tell on stderr where an adapter names another model than the one that it is put into."""
    if adapter is not None:
        from choicewise.models.local.adapter import read_adapter

        if (base := read_adapter(adapter).made_for_another(model)) is not None:
            tell(f"note: the adapter {adapter} says that it was trained beside {base}, not {model}")


def _word(value: object) -> str:
    return f"./{value}" if isinstance(value, Path) and str(value).startswith("-") else str(value)
