"""A bundle asked of a model in training: log-probabilities by its own forward pass, a run folder a step, metrics.

Sequences are plain causal rows, padded on the right: exact on every decoder, and no mask is needed.  In a job of
several processes every rank calls forward equally often with equally many tokens, as sharded weights are gathered in
every call; what all of them have to agree on, whether to begin and how it ended, they exchange before any of them
raises.  The run folder and its numbers are made as those of any other answers to a bundle
(:func:`choicewise.extensions.training.bundles.answers.write_run`): no metric is computed here.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard

from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.extensions.training.bundles.answers import Answered, write_run
from choicewise.extensions.training.bundles.bundle import RUN, Bundle, open_bundle
from choicewise.models.local.devices import LOGITS
from choicewise.models.local.files import window_of
from choicewise.models.local.tokenizer import named_tokenizer
from choicewise.protocols.between import under_metrics
from choicewise.protocols.metrics import METRIC_NAMES
from choicewise.protocols.metrics import METRICS as KNOWN
from choicewise.protocols.protocol import Protocol
from choicewise.records import BLOCK_FOLDER, ITEM_FILE, MANIFEST, SUMMARY
from choicewise.results.evidence import RunEvidence
from choicewise.results.run import Run, open_run
from choicewise.store.folder import read_manifest
from choicewise.util.files import PARTIAL, copy_of, disk_errors, put_back, remove, replace_folder
from choicewise.util.jsonio import json_text
from choicewise.util.text import counted, listed

METRICS: Final = ("acc", "prob", "bpb")
"""Accuracy, probability of the right choice, bits per byte."""

BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 16384}
"""Tokens of a batch of one rank, padding among them."""

COARSE, FINE, SHORT = 128, 32, 512
"""Rows are padded to multiples of the first; of the second where none has more tokens than the third."""

RUN_FILES: Final = {MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER}
"""Names in the folder of a run."""

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From ids, positions (int64) and what is no padding (bool), all [rows, tokens]: logits [rows, tokens, vocabulary]."""

Group: TypeAlias = dist.ProcessGroup | Literal[False] | None
Integers = npt.NDArray[np.int64]


class InLoop:
    """Asks a bundle of a model in memory, at any step of its training.

    ``bundle``: a folder that `choicewise requests` made, or what :func:`choicewise.open_bundle` gave; it holds tokens,
    so that no tokenizer is needed.  ``out``: below it lies a run folder a step, ``step1000``, which all commands read.
    ``name``: what the model is called there.  ``every``: the cadence of :meth:`when_due`, in steps.  ``metrics``: names
    as of `choicewise report`, of which every protocol of accuracy gives those that it can; others give their own.

    ``tokenizer``: the one of the training, a folder or name, or an object of transformers: it is compared with the
    bundle's, once.  ``forward``: for a model that does not take ids [rows, tokens] and give logits.  ``window``: the
    most input tokens, where no ``model.config`` says it.  ``group``: the ranks among which rows are divided; None for
    all of the job, False where each takes all rows, as tensor parallelism alone needs.  ``batch_tokens``: of a forward
    pass on a rank.  ``overwrite``: whether a new run of a step replaces the one that is there, as a training that goes
    on from a checkpoint comes to the same steps again.  A folder with anything but a run of that model and step, such
    as a checkpoint, is never replaced.

    Raises StoreError for what is no bundle, ModelError for another tokenizer, UsageError for an unknown metric.
    """

    def __init__(
        self,
        bundle: str | Path | Bundle,
        out: str | Path = "in-loop",
        *,
        name: str = "model",
        every: int = 1000,
        metrics: Sequence[str] = METRICS,
        tokenizer: Any = None,
        forward: Forward | None = None,
        window: int | None = None,
        group: Group = None,
        batch_tokens: int | None = None,
        overwrite: bool = False,
    ) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        self.out, self.name, self.every = Path(out), name, every
        for what, number in {
            "every": every,
            "window": window,
            "batch_tokens": batch_tokens,
        }.items():
            if number is not None and number < 1:
                raise UsageError(f"{what} is {number}; it must be at least 1")
        self._forward, self._window, self._group = forward, window, group
        self._batch_tokens, self._overwrite, self._next = batch_tokens, overwrite, 0
        self._scalars = _scalars(self.bundle, metrics)
        scored = self.bundle.scored
        if not len(scored) or not scored.place.min():
            raise StoreError(
                f"{self.bundle.path} asks about nothing, or about a first token, which nothing predicts; make it again"
                " with protocols and data that `choicewise run` can ask"
            )
        self._first = np.searchsorted(scored.row, np.arange(self.bundle.record.rows + 1))
        self._inputs = np.maximum.reduceat(scored.place, self._first[:-1])
        ids = self.bundle.rows["input_ids"].combine_chunks().flatten()
        self._greatest = max(int(scored.token.max()), pc.max(ids).as_py())
        if tokenizer is not None:
            self.compare_tokenizer(tokenizer)

    def when_due(self, model: nn.Module, step: int) -> dict[str, float]:
        """As a call, at every step that is a multiple of ``every``; at the others nothing, and no metrics."""
        return self(model, step) if step % self.every == 0 else {}

    def folder(self, step: int) -> Path:
        """Where the run of ``step`` lies."""
        return self.out / f"step{step}"

    def __call__(self, model: nn.Module, step: int | None = None) -> dict[str, float]:
        """Ask everything of ``model``, write the run of ``step``, and return ``choicewise/PROTOCOL/METRIC`` → value.

        Without a step it is the one after the last call's, and 0 the first time.  NaN stands for a metric without a
        number.  All ranks of a job call it, and all get the metrics; the first one writes.  The model is in eval mode
        meanwhile and then as it was, and so are random numbers and gradients.

        Raises, on all ranks, ModelError for a model that does not fit the bundle, or that answers with NaN, and
        StoreError for a step that is there already, or where nothing can be written; UsageError for a step that is no
        whole number.  No run is written then.
        """
        step = self._next if step is None else step
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            raise UsageError(
                f"step is {step!r}; name a whole number from 0 on, which the folder of its run is called by"
            )
        ranks = _Ranks(self._group)
        ranks.refuse_differences(self.bundle, step)
        if ranks.world > 1 and self._group is None and _is_divided(model):
            raise UsageError(
                "layers of the model are divided among ranks, which then need the same rows: name the group of ranks"
                ' that are data-parallel, as mesh["dp"].get_group(), or False where none are'
            )
        folder, (vocabulary, window) = self.folder(step), self._fit(model)
        name = f"{self.name}@step{step}"
        ranks.first(lambda: self._refuse_loss(folder, name))
        logprobs, likelier = self._ask(model, ranks, vocabulary, window)
        self._refuse_numbers(logprobs, step)
        dtypes = sorted({str(each.dtype).removeprefix("torch.") for each in model.parameters()})
        facts = {"step": str(step), "dtype": ", ".join(dtypes), "processes": str(ranks.world)}
        engine = f"torch {torch.__version__}"
        answers = Answered(name, logprobs, likelier, engine=engine, settings=facts)
        values = ranks.first(lambda: self._write(answers, folder))
        self._next = step + 1
        return {name: float("nan") if value is None else value for name, value in values.items()}

    def compare_tokenizer(self, tokenizer: Any) -> None:
        """Raise ModelError where ``tokenizer`` is not the bundle's: by the digest of a folder or name, else by probes.

        An object is asked with ``encode(text, add_special_tokens=False)``.
        """
        record, path = self.bundle.record.tokenizer, self.bundle.path
        advice = "make a bundle with the tokenizer of this model"
        if isinstance(tokenizer, str | Path):
            if (digest := named_tokenizer(str(tokenizer)).digest) != record.digest:
                raise ModelError(
                    f"{path} was made for tokenizer {record.name} ({record.digest[:12]}), and {tokenizer} is another"
                    f" ({digest[:12]}); {advice}"
                )
            return
        for probe in record.probes:
            ids = [int(token) for token in tokenizer.encode(probe.text, add_special_tokens=False)]
            if ids != [*probe.ids]:
                raise ModelError(
                    f"{path} was made for tokenizer {record.name}, in which {probe.text!r} is {[*probe.ids]}; in the"
                    f" one of this training it is {ids}; {advice}"
                )

    def _fit(self, model: nn.Module) -> tuple[int | None, int]:
        """Entries of the logits that are tokens, None for all, and input tokens that fit; ModelError for too few."""
        path, longest = self.bundle.path, int(self._inputs.max())
        config: Any = getattr(_innermost(model), "config", None)
        stated: dict[str, Any] = config.to_dict() if hasattr(config, "to_dict") else {}
        vocabulary = (stated.get("text_config") or stated).get("vocab_size")
        embeddings = [
            each.num_embeddings for each in model.modules() if isinstance(each, nn.Embedding)
        ]
        known = max(embeddings, default=None) if vocabulary is None else vocabulary
        if known is not None and known <= self._greatest:
            raise ModelError(
                f"the model knows {known:,} tokens, and {path} asks about token {self._greatest}: it was made for"
                f" tokenizer {self.bundle.record.tokenizer.name}; make a bundle with the tokenizer of this model"
            )
        window = _positions(stated, longest) if self._window is None else self._window
        if window < longest:
            raise ModelError(
                f"{window:,} input tokens fit the model, and {path} has a row of {longest:,}; make the bundle again"
                f" with a window of {window}"
            )
        return vocabulary, window

    def _refuse_loss(self, folder: Path, name: str) -> None:
        """Raise StoreError if ``folder`` holds what a new run of the model called ``name`` must not replace."""
        if not folder.exists():
            return
        if not self._overwrite:
            raise StoreError(
                f"{folder} is there already; choose another folder, delete it, or let InLoop overwrite steps, where a"
                " training goes on from a checkpoint"
            )
        if not folder.is_dir():
            raise StoreError(
                f"{folder} is a file, not the run of a step; choose another folder for InLoop"
            )
        foreign = [
            path.name
            for path in folder.iterdir()
            if path.name not in RUN_FILES and path.suffix != PARTIAL
        ]
        if foreign:
            raise StoreError(
                f"{folder} holds {listed(sorted(foreign))}, which a run does not have; InLoop does not delete it."
                " Choose another folder for InLoop"
            )
        if not any(folder.iterdir()):
            return
        model = read_manifest(folder).model.name
        if model != name:
            raise StoreError(
                f"{folder} is a run of {model}, not of {name}; choose another folder for InLoop"
            )

    def _refuse_numbers(self, logprobs: npt.NDArray[np.float32], step: int) -> None:
        wrong = np.flatnonzero(~np.isfinite(logprobs))
        if len(wrong):
            keys = self.bundle.rows["key"]
            named = dict.fromkeys(str(keys[int(self.bundle.scored.row[at])]) for at in wrong[:3])
            raise ModelError(
                f"at step {step} {counted(len(wrong), 'log-probability', 'log-probabilities')} of {len(logprobs):,} are"
                f" no numbers but {logprobs[wrong[0]]}: rows {listed(list(named))} of {self.bundle.path}; no run was"
                " written; look at the loss of the steps before"
            )

    def _write(self, answers: Answered, folder: Path) -> dict[str, float | None]:
        self._refuse_loss(
            folder, answers.model
        )  # a checkpoint may have been written there meanwhile
        partial = folder.with_name(folder.name + PARTIAL)
        with disk_errors(folder):
            put_back(folder)
            remove(partial)
            try:
                write_run(self.bundle, answers, partial)
                replace_folder(partial, folder)
            finally:
                remove(partial)
        run = open_run(folder)
        distinct = dict(zip(reversed(self._scalars.values()), reversed(self._scalars), strict=True))
        part = run.under({name: protocol for protocol, name in distinct.items()})
        values = {row.protocol: row.value for row in part.rows() if row.subject == "all"}
        run.release()
        numbers = {name: values[distinct[protocol]] for name, protocol in self._scalars.items()}
        return {name: value if np.isfinite(value) else None for name, value in numbers.items()}

    def _ask(
        self, model: nn.Module, ranks: _Ranks, vocabulary: int | None, window: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Log-probabilities (nats) of everything that is scored, and how many tokens are likelier, in its order."""
        device = next((each.device for each in model.parameters()), torch.device("cpu"))
        scored, places, parts = self.bundle.scored, list[Integers](), list[Tensor]()
        most = self._batch_tokens or BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"])
        with _undisturbed(model, device):
            for length, rows in _batches(self._inputs, ranks.parts, window, most):
                own = rows[ranks.part]
                asked = [
                    np.arange(self._first[row], self._first[row + 1])
                    for row in own[own >= 0].tolist()
                ]
                at = np.concatenate([np.zeros(0, np.int64), *asked])
                line = np.repeat(np.arange(len(asked)), [len(each) for each in asked])
                logits, kept = self._logits(model, own, length, scored.place[at] - 1, device)
                column = np.searchsorted(kept, scored.place[at] - 1)
                parts.append(_read(logits, line, column, scored.token[at], vocabulary))
                places.append(at)
        values = np.zeros((2, len(scored)), np.float32)
        values[:, np.concatenate(places)] = torch.cat(parts, dim=1).cpu().numpy()
        logprobs, likelier = ranks.total(values)
        return logprobs, likelier.astype(np.int32)

    def _logits(
        self, model: nn.Module, rows: Integers, length: int, places: Integers, device: torch.device
    ) -> tuple[Tensor, Integers]:
        """Logits [rows, kept, vocabulary], and the places that are kept, ascending: all, or those that are asked for.

        A row -1 stands for none, at the end of ``rows``: its tokens are those of another.
        """
        ids = np.zeros((len(rows), length), np.int64)
        sizes = np.zeros(len(rows), np.int64)
        for line, row in enumerate(rows.tolist()):
            own = self.bundle.ids(max(row, 0))[: self._inputs[max(row, 0)]][:length]
            ids[line, : len(own)], ids[line, len(own) :], sizes[line] = own, own[-1], len(own)
        inputs = torch.from_numpy(ids).to(device)
        kept = np.arange(length)
        if self._forward is not None:
            positions = torch.arange(length, device=device).expand(inputs.shape)
            output = self._forward(
                inputs, positions, positions < torch.from_numpy(sizes).to(device)[:, None]
            )
        else:
            takes = inspect.signature(type(_innermost(model)).forward).parameters
            further: dict[str, Any] = {"use_cache": False} if "use_cache" in takes else {}
            if "logits_to_keep" in takes and not _is_divided(model):
                kept = np.unique(places) if len(places) else np.zeros(1, np.int64)
                further["logits_to_keep"] = torch.from_numpy(kept).to(device)
            output = model(input_ids=inputs, **further) if "input_ids" in takes else model(inputs)
        logits = getattr(output, "logits", output[0] if isinstance(output, tuple) else output)
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        if (
            len(shape) != 3
            or shape[:2] != (len(rows), len(kept))
            or shape[2] <= self.bundle.scored.token.max()
        ):
            raise ModelError(
                f"the forward pass gave {shape} for {len(rows)} rows of {length} tokens, and not logits [rows, tokens,"
                f" vocabulary] with token {int(self.bundle.scored.token.max())}; name a forward that does"
            )
        return logits, kept


def _scalars(bundle: Bundle, metrics: Sequence[str]) -> dict[str, Protocol]:
    """The name of every scalar, and the protocol whose value it is; UsageError for a metric that nobody knows."""
    run, scalars = (
        Run(RunEvidence(bundle.path / RUN, bundle.manifest), bundle.protocols),
        dict[str, Protocol](),
    )
    for name, protocol in bundle.protocols.items():
        if protocol.metric != "acc":
            scalars[f"choicewise/{name}/{protocol.metric}"] = protocol
            continue
        for metric in metrics:
            try:
                (own,) = under_metrics({name: protocol}, [metric]).values()
            except UsageError:
                if metric in KNOWN or metric in METRIC_NAMES:
                    continue  # it can't be made of this protocol's scores
                raise
            if not run.lacking({name: own}):
                scalars[f"choicewise/{name}/{metric}"] = own
    return scalars


def _positions(stated: Mapping[str, Any], longest: int) -> int:
    """The input tokens that fit a model by its configuration; ``longest`` where that does not say it."""
    try:
        known = window_of(stated, Path("model"))
    except ModelError:
        return longest
    with suppress(ModelError):  # positions of some models have no end
        return max(known, window_of(stated, Path("model"), longest))
    return known


def _innermost(model: nn.Module) -> nn.Module:
    """The module below what only wraps another: for data parallelism, or what a compiler made of it."""
    while any(
        each.kind is each.VAR_POSITIONAL
        for each in inspect.signature(type(model).forward).parameters.values()
    ):
        inner = getattr(model, "module", getattr(model, "_orig_mod", None))
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def _is_divided(model: nn.Module) -> bool:
    """Whether layers are divided among ranks (tensor parallelism), and not only weights that a forward gathers.

    ``fully_shard`` shards every weight once, whatever replicas there are; together with other shards that is twice.
    """
    gathered = any(isinstance(each, FSDPModule) for each in model.modules())
    shards = [
        sum(not place.is_replicate() for place in each.placements)
        for each in model.parameters()
        if isinstance(each, DTensor)
    ]
    return max(shards, default=0) > int(gathered)


def _batches(
    inputs: Integers, parts: int, window: int, most: int
) -> Iterator[tuple[int, Integers]]:
    """Of all rows, by their numbers of ``inputs``: a length, and which rows each part takes, int64 [parts, rows].

    Lengths are few, and so are numbers of rows, as compiled models and allocators have work with every new one.  A row
    -1 stands for none, after the others.
    """
    step = FINE if inputs.max() <= SHORT else COARSE
    lengths = np.minimum(-(-inputs // step) * step, window)
    for length in np.unique(lengths)[
        ::-1
    ].tolist():  # the longest first: what does not fit in memory fails at once
        rows = np.flatnonzero(lengths == length)
        times = -(-len(rows) // (max(most // length, 1) * parts))
        size = -(-len(rows) // (times * parts))
        filled = np.full(times * parts * size, -1)
        filled[: len(rows)] = rows
        for batch in filled.reshape(times, size, parts):
            yield length, batch.T


def _read(
    logits: Tensor, line: Integers, column: Integers, tokens: Integers, vocabulary: int | None
) -> Tensor:
    """Log-probabilities (nats) of ``tokens`` at the places (``line``, ``column``) of ``logits``, and how many are
    likelier, float32 [2, places]; over the first ``vocabulary`` entries, as others only fill up."""
    if not len(line):
        return torch.zeros(2, 0, device=logits.device)
    codes, of_token = np.unique(line * logits.shape[1] + column, return_inverse=True)
    step = max(1, LOGITS.get(logits.device.type, LOGITS["cpu"]) // (4 * logits.shape[2]))
    order = np.argsort(of_token, kind="stable")
    read = []
    for first in range(0, len(codes), step):
        some = torch.from_numpy(codes[first : first + step]).to(logits.device)
        width = logits.shape[1]
        numbers = _picked(logits, some // width, some % width)[:, :vocabulary].float()
        low, high = np.searchsorted(of_token[order], [first, first + step])
        own = torch.from_numpy(of_token[order[low:high]] - first).to(logits.device)
        wanted = torch.from_numpy(tokens[order[low:high]]).to(logits.device)[:, None]
        logprobs = torch.log_softmax(numbers, dim=-1)
        for some_own, some_wanted in zip(own.split(step), wanted.split(step), strict=True):
            of_own = numbers[some_own]
            likelier = (of_own > of_own.gather(1, some_wanted)).sum(dim=1).float()
            read.append(torch.stack([logprobs[some_own, some_wanted[:, 0]], likelier]))
    back = torch.from_numpy(np.argsort(order)).to(logits.device)
    return torch.cat(read, dim=1)[:, back]


def _picked(logits: Tensor, line: Tensor, column: Tensor) -> Tensor:
    """Logits at these places, [places, vocabulary], whole where each rank has a part of them."""
    if not isinstance(logits, DTensor):
        return logits[line, column]
    if any(not (place.is_replicate() or place.is_shard(2)) for place in logits.placements):
        return logits.full_tensor()[line, column]
    shape = torch.Size([len(line), logits.shape[2]])
    places = [Shard(1) if place.is_shard() else place for place in logits.placements]
    own = logits.to_local()[line, column]
    mesh = logits.device_mesh
    return DTensor.from_local(
        own, mesh, places, run_check=False, shape=shape, stride=(shape[1], 1)
    ).full_tensor()


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """``model`` in eval mode, without gradients; afterwards everything is as it was.

    Not in inference mode: what a module keeps from it, such as tables of positions, could not be trained with.
    """
    training, modes = model.training, [(each, each.training) for each in model.modules()]
    with ExitStack() as ended:
        ended.enter_context(torch.no_grad())
        others = [] if device.type == "cpu" else [device]
        ended.enter_context(
            torch.random.fork_rng(others, device_type=device.type if others else "cuda")
        )
        if (
            "torch._dynamo" in sys.modules
        ):  # shapes of ours are not compiled, nor do they replace those of the training
            ended.enter_context(torch.compiler.set_stance("force_eager"))
        # Older torch takes weights that were cast here, without gradients, again in a pass of the same autocast.
        ended.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)
        try:
            model.eval()
            yield
        finally:
            for each in model.modules():
                if isinstance(each, FSDPModule):
                    each.reshard()  # else the last gathered weights are used again after the optimizer's step
            model.train(training)
            for each, mode in modes:
                each.training = mode


class _Ranks:
    """The processes of a job, one where none was started: ``world`` of them, with rows in ``parts``, of which this one
    has number ``part``."""

    def __init__(self, group: Group) -> None:
        self.world, self.parts, self.part, self._group = 1, 1, 0, group or None
        if dist.is_available() and dist.is_initialized():
            self.world = dist.get_world_size()
            backend = dist.get_backend()
            own = torch.device("cpu")
            if (
                "gloo" not in backend
                and "mpi" not in backend
                and (device := torch.accelerator.current_accelerator())
            ):
                own = torch.device(device.type, torch.accelerator.current_device_index())
            self._device = own
            if group is not False:
                self.parts, self.part = dist.get_world_size(self._group), dist.get_rank(self._group)
        if self.part < 0:
            raise UsageError(
                "this process is not in the group that rows are divided among; name its own group"
            )

    def refuse_differences(self, bundle: Bundle, step: int) -> None:
        """Raise on all of them where they ask another bundle, or are at another step."""
        if self.world == 1:
            return
        said = torch.tensor([int(bundle.digest[:15], 16), step], device=self._device)
        least, most = said.clone(), said.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if least[0] != most[0]:
            raise StoreError(
                f"processes of the job ask different bundles, here {bundle.path}; give all the same one"
            )
        if least[1] != most[1]:
            raise UsageError(
                f"processes of the job are at steps {int(least[1])} to {int(most[1])}; call it at one"
            )

    def total(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The sum of what each part has, where the others have 0."""
        if self.parts == 1:
            return values
        summed = torch.from_numpy(values).to(self._device)
        dist.all_reduce(summed, group=self._group)
        return summed.cpu().numpy()

    def first(self, do: Callable[[], Any]) -> Any:
        """What ``do`` returns in the first process, something that JSON can hold; or its error, on all of them."""
        if self.world == 1:
            return do()
        said, error = {}, None
        if dist.get_rank() == 0:
            try:
                said = {"value": do()}
            except Exception as raised:  # the others wait for whatever happened
                said, error = {"error": str(raised)}, raised
        content = torch.frombuffer(bytearray(json_text(said).encode()), dtype=torch.uint8).to(
            self._device
        )
        size = torch.tensor([len(content)], device=self._device)
        dist.broadcast(size, 0)
        if dist.get_rank() > 0:
            content = torch.zeros(int(size), dtype=torch.uint8, device=self._device)
        dist.broadcast(content, 0)
        if error is not None:
            raise error
        said = json.loads(bytes(content.cpu().numpy()))
        if "error" in said:
            raise StoreError(f"the first process of the job could not go on: {said['error']}")
        return said["value"]
