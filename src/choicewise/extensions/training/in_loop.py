"""The evaluation of a model in training: a bundle, a run folder and metrics for each step.

Sequences are plain causal rows, padded on the right: exact on every decoder, and no mask is needed.
In a job of several processes all ranks call forward equally often with equally many tokens, as
sharded weights are gathered in every call; before a rank raises, all exchange whether to begin and
how it ended.  The run folder and its numbers are made like those of any answers to a bundle
(:func:`choicewise.extensions.training.bundles.answers.write_run`): no metric is computed here.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard

from choicewise.engine import ranges
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
from choicewise.scoring.observed import Integers
from choicewise.store.folder import read_manifest
from choicewise.util.files import PARTIAL, copy_of, disk_errors, put_back, remove, replace_folder
from choicewise.util.jsonio import JsonDict, JsonMapping, json_text
from choicewise.util.text import listed

METRICS = ("acc", "prob", "bpb")
"""Accuracy, probability of the right choice, bits per byte."""

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""Tokens of a batch of one rank, with padding."""

COARSE = 128
FINE = 32
SHORT = 512
"""Rows are padded to multiples of ``COARSE``, or of ``FINE`` if none has more than ``SHORT``
tokens.
"""

RUN_FILES = {MANIFEST, copy_of(Path(MANIFEST)).name, ITEM_FILE, SUMMARY, BLOCK_FOLDER}
"""Names in the folder of a run."""

Forward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Compute logits [rows, tokens, vocabulary] from three tensors [rows, tokens].

They are ids (int64), positions (int64), and True for tokens that are no padding.
"""

Group: TypeAlias = dist.ProcessGroup | Literal[False] | None


class InLoop:
    """Evaluate a model in memory on a bundle, at any step of its training.

    ``bundle``: a folder that `choicewise requests` made, or a
    :class:`~choicewise.extensions.training.bundles.bundle.Bundle`.  It holds tokens, so no
    tokenizer is needed.  ``out``: the folder of the run folders, ``step1000`` and so on, which all
    commands read.  ``name``: the model's name there.  ``every``: the interval of :meth:`when_due`,
    in steps.  ``metrics``: names of `choicewise report`, for the protocols that measure accuracy;
    other protocols have one metric.

    ``tokenizer``: that of the training, to compare with the bundle's once; a folder, a name, or an
    object of transformers.  ``forward``: for a model that does not take ids [rows, tokens] and
    return logits.  ``window``: the most input tokens, if no ``model.config`` states it.  ``group``:
    the ranks that share the rows; None for the whole job; False if all ranks need all rows, as
    tensor parallelism alone does.  ``batch_tokens``: of a forward pass on one rank.  ``overwrite``:
    True to replace the run of a step, as a training that resumes from a checkpoint repeats steps.
    A folder that holds anything but a run of that model and step is never replaced.

    Raises StoreError if the bundle can't be used, ModelError for a different tokenizer, and
    UsageError for an unknown metric.
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
        numbers = {"every": every, "window": window, "batch_tokens": batch_tokens}
        for argument, number in numbers.items():
            if number is not None and number < 1:
                raise UsageError(f"{argument} is {number}; it must be at least 1")
        self.bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        self.out = Path(out)
        self.name = name
        self.every = every
        self._forward = forward
        self._window = window
        self._group = group
        self._batch_tokens = batch_tokens
        self._overwrite = overwrite
        self._next = 0
        self._scalars = _scalars(self.bundle, metrics)
        scored = self.bundle.scored
        if not len(scored) or not scored.position.min():
            raise StoreError(
                f"{self.bundle.path} has nothing to score, or scores a first token, which nothing "
                "predicts; make it again with protocols and data that `choicewise run` takes"
            )
        self._first = np.searchsorted(scored.row, np.arange(self.bundle.record.rows + 1))
        # A row needs no input after the one that predicts its last scored token.
        self._inputs = np.maximum.reduceat(scored.position, self._first[:-1])
        ids = self.bundle.rows["input_ids"].combine_chunks().flatten()
        self._greatest = max(int(scored.token.max()), pc.max(ids).as_py())
        if tokenizer is not None:
            self.compare_tokenizer(tokenizer)

    def when_due(self, model: nn.Module, step: int) -> dict[str, float]:
        """Evaluate ``model`` if ``step`` is a multiple of ``every``; else return no metrics."""
        if step % self.every:
            return {}
        return self(model, step)

    def folder(self, step: int) -> Path:
        """Return the path of the run of ``step``."""
        return self.out / f"step{step}"

    def __call__(self, model: nn.Module, step: int | None = None) -> dict[str, float]:
        """Evaluate ``model``, write the run of ``step``, and return ``choicewise/PROTOCOL/METRIC``
        → value.

        Without a step it is the one after the last call's, and 0 in the first call.  A metric
        without a number is NaN.  All ranks of a job must call it, and all get the metrics; the
        first one writes.  The model is put into eval mode meanwhile; its modes, random numbers and
        gradients are then as before.

        Raises, on all ranks, ModelError if the model does not fit the bundle or gives NaN,
        StoreError if the step exists or can't be written, and UsageError if it is no whole number.
        Then no run is written.
        """
        if step is None:
            step = self._next
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            raise UsageError(
                f"step is {step!r}; it must be a whole number from 0, which names the folder of "
                "the run"
            )
        ranks = _Ranks(self._group)
        ranks.refuse_differences(self.bundle, step)
        if ranks.world > 1 and self._group is None and _is_divided(model):
            raise UsageError(
                "the model's layers are divided among ranks, which need the same rows. Pass the "
                "group of "
                'data-parallel ranks, such as mesh["dp"].get_group(), or False if there is none'
            )
        vocabulary, window = self._fit(model)
        folder = self.folder(step)
        name = f"{self.name}@step{step}"
        # Before the model computes, which may take minutes.
        ranks.first(lambda: self._refuse_loss(folder, name))
        logprobs, likelier = self._score(model, ranks, vocabulary, window)
        self._refuse_numbers(logprobs, step)
        dtypes = {str(weights.dtype).removeprefix("torch.") for weights in model.parameters()}
        settings = {
            "step": str(step),
            "dtype": ", ".join(sorted(dtypes)),
            "processes": str(ranks.world),
        }
        engine = f"torch {torch.__version__}"
        answers = Answered(name, logprobs, likelier, engine=engine, settings=settings)
        values = ranks.first(lambda: self._write(answers, folder))
        self._next = step + 1
        # JSON, by which ranks exchange the metrics, has no NaN.
        return {name: float("nan") if value is None else value for name, value in values.items()}

    def compare_tokenizer(self, tokenizer: Any) -> None:
        """Raise ModelError if ``tokenizer`` is not the bundle's.

        A folder or name is compared by digest, an object by the tokens of probes, which it makes
        with ``encode(text, add_special_tokens=False)``.
        """
        record = self.bundle.record.tokenizer
        path = self.bundle.path
        advice = "make a bundle with the tokenizer of this model"
        if isinstance(tokenizer, str | Path):
            digest = named_tokenizer(str(tokenizer)).digest
            if digest != record.digest:
                raise ModelError(
                    f"{path} was made for tokenizer {record.name} ({record.digest[:12]}), not "
                    f"{tokenizer} ({digest[:12]}); {advice}"
                )
            return
        for probe in record.probes:
            ids = [int(token) for token in tokenizer.encode(probe.text, add_special_tokens=False)]
            expected = list(probe.ids)
            if ids != expected:
                raise ModelError(
                    f"{path} was made for tokenizer {record.name}, which encodes {probe.text!r} as "
                    f"{expected}; this training's tokenizer gives {ids}; {advice}"
                )

    def _fit(self, model: nn.Module) -> tuple[int | None, int]:
        """Return how many logits are tokens, None for all, and how many input tokens fit.

        Raises ModelError if the bundle needs more of either.
        """
        path = self.bundle.path
        longest = int(self._inputs.max())
        config: Any = getattr(_innermost(model), "config", None)
        stated: JsonDict = config.to_dict() if hasattr(config, "to_dict") else {}
        vocabulary = (stated.get("text_config") or stated).get("vocab_size")
        tokens = vocabulary
        if tokens is None:
            embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
            tokens = max((module.num_embeddings for module in embeddings), default=None)
        if tokens is not None and tokens <= self._greatest:
            raise ModelError(
                f"the model has {tokens:,} tokens, but {path}, for tokenizer "
                f"{self.bundle.record.tokenizer.name}, has token {self._greatest}; make a bundle "
                "with the tokenizer of this model"
            )
        window = self._window
        if window is None:
            window = _positions(stated, longest)
        if window < longest:
            raise ModelError(
                f"the model takes {window:,} input tokens, but {path} has a row of {longest:,}; "
                "make the "
                f"bundle again with window {window}"
            )
        return vocabulary, window

    def _refuse_loss(self, folder: Path, name: str) -> None:
        """Raise StoreError if ``folder`` holds what a new run of the model called ``name`` must not
        replace.
        """
        if not folder.exists():
            return
        if not self._overwrite:
            raise StoreError(
                f"{folder} already exists; choose another folder, delete it, or pass "
                "overwrite=True to InLoop if the "
                "training resumes from a checkpoint"
            )
        if not folder.is_dir():
            raise StoreError(
                f"{folder} is a file, not the run of a step; choose another folder for InLoop"
            )
        foreign = []
        for path in folder.iterdir():
            if path.name not in RUN_FILES and path.suffix != PARTIAL:
                foreign.append(path.name)
        if foreign:
            raise StoreError(
                f"{folder} holds {listed(sorted(foreign))}, which a run does not have, so InLoop "
                "won't delete it; choose another folder for InLoop"
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
            rows = self.bundle.scored.row[wrong[:3]].tolist()
            keys = self.bundle.rows["key"].take(list(dict.fromkeys(rows))).to_pylist()
            raise ModelError(
                f"at step {step} {len(wrong):,} of {len(logprobs):,} log-probabilities are "
                f"{logprobs[wrong[0]]}: rows {listed(keys)} of {self.bundle.path}. No run was "
                "written; look at the loss of the steps before"
            )

    def _write(self, answers: Answered, folder: Path) -> dict[str, float | None]:
        """Write the run of a step, and return its metrics, None for a metric without a number."""
        # The training may have written a checkpoint there since the first check.
        self._refuse_loss(folder, answers.model)
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
        # Several scalars may have one protocol, which is measured once.
        name_of: dict[Protocol, str] = {}
        for name, protocol in self._scalars.items():
            name_of.setdefault(protocol, name)
        part = run.under({name: protocol for protocol, name in name_of.items()})
        value_of = {
            row.identity.protocol: row.value for row in part.rows() if row.identity.subject == "all"
        }
        run.release()
        values: dict[str, float | None] = {}
        for name, protocol in self._scalars.items():
            value = value_of[name_of[protocol]]
            values[name] = value if np.isfinite(value) else None
        return values

    def _score(
        self, model: nn.Module, ranks: _Ranks, vocabulary: int | None, window: int
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
        """Return for all scored tokens the log-probability (nats), and how many tokens are
        likelier.
        """
        scored = self.bundle.scored
        device = next((weights.device for weights in model.parameters()), torch.device("cpu"))
        most = self._batch_tokens or BATCH_TOKENS.get(device.type, BATCH_TOKENS["cuda"])
        scored_parts = []
        value_parts = []
        with _undisturbed(model, device):
            for length, batch in _batches(self._inputs, ranks.parts, window, most):
                rows = batch[ranks.part]
                filled = rows[rows >= 0]
                counts = self._first[filled + 1] - self._first[filled]
                tokens = ranges(self._first[filled], counts)
                line = np.repeat(np.arange(len(filled)), counts)
                # The logits of a token stand at the one before it.
                inputs = scored.position[tokens] - 1
                logits, kept = self._logits(model, rows, length, inputs, device)
                column = np.searchsorted(kept, inputs)
                values = _read(logits, line, column, scored.token[tokens], vocabulary)
                scored_parts.append(tokens)
                value_parts.append(values)
        whole = np.zeros((2, len(scored)), np.float32)
        whole[:, np.concatenate(scored_parts)] = torch.cat(value_parts, dim=1).cpu().numpy()
        logprobs, likelier = ranks.total(whole)
        return logprobs, likelier.astype(np.int32)

    def _logits(
        self, model: nn.Module, rows: Integers, length: int, inputs: Integers, device: torch.device
    ) -> tuple[Tensor, Integers]:
        """Return logits [rows, kept, vocabulary], and the indices of the kept inputs, ascending.

        All inputs of ``length`` are kept, or those of ``inputs`` if the model can leave out others.
        A row -1 at the end of ``rows`` is empty, and gets the tokens of another row.
        """
        ids = np.zeros((len(rows), length), np.int64)
        sizes = np.zeros(len(rows), np.int64)
        for line, row in enumerate(np.maximum(rows, 0).tolist()):
            tokens = self.bundle.ids(row)[: self._inputs[row]][:length]
            ids[line, : len(tokens)] = tokens
            ids[line, len(tokens) :] = tokens[-1]
            sizes[line] = len(tokens)
        input_ids = torch.from_numpy(ids).to(device)
        kept = np.arange(length)
        if self._forward is not None:
            positions = torch.arange(length, device=device).expand(input_ids.shape)
            is_token = positions < torch.from_numpy(sizes).to(device)[:, None]
            output = self._forward(input_ids, positions, is_token)
        else:
            parameters = inspect.signature(type(_innermost(model)).forward).parameters
            options: dict[str, Any] = {}
            if "use_cache" in parameters:
                options["use_cache"] = False
            if "logits_to_keep" in parameters and not _is_divided(model):
                # A rank without rows of its own keeps one input, as transformers reads none as all.
                kept = np.unique(inputs) if len(inputs) else np.zeros(1, np.int64)
                options["logits_to_keep"] = torch.from_numpy(kept).to(device)
            if "input_ids" in parameters:
                output = model(input_ids=input_ids, **options)
            else:
                output = model(input_ids)
        first = output[0] if isinstance(output, tuple) else output
        logits = getattr(output, "logits", first)
        self._check_logits(logits, output, len(rows), length, len(kept))
        return logits, kept

    def _check_logits(self, logits: Any, output: Any, rows: int, length: int, kept: int) -> None:
        shape: Any = type(output).__name__
        greatest = int(self.bundle.scored.token.max())
        if isinstance(logits, Tensor):
            shape = tuple(logits.shape)
            if len(shape) == 3 and shape[:2] == (rows, kept) and shape[2] > greatest:
                return
        raise ModelError(
            f"the forward pass gave {shape} for {rows} rows of {length} tokens, not logits [rows, "
            f"tokens, vocabulary] with token {greatest}; pass forward=... that does"
        )


def _scalars(bundle: Bundle, metrics: Sequence[str]) -> dict[str, Protocol]:
    """Return scalar name → the protocol that measures it; UsageError for an unknown metric."""
    run = Run(RunEvidence(bundle.path / RUN, bundle.manifest), bundle.protocols)
    scalars: dict[str, Protocol] = {}
    for name, protocol in bundle.protocols.items():
        if protocol.metric != "acc":
            scalars[f"choicewise/{name}/{protocol.metric}"] = protocol
            continue
        for metric in metrics:
            try:
                (measured,) = under_metrics({name: protocol}, [metric]).values()
            except UsageError:
                if metric in KNOWN or metric in METRIC_NAMES:
                    continue  # it can't be made of this protocol's scores
                raise
            if not run.lacking({name: measured}):
                scalars[f"choicewise/{name}/{metric}"] = measured
    return scalars


def _positions(stated: JsonMapping, longest: int) -> int:
    """Return how many input tokens fit a model of this configuration; ``longest`` if it is silent."""
    try:
        window = window_of(stated, Path("model"))
    except ModelError:
        return longest
    with suppress(ModelError):  # models with relative positions take more than they state
        return max(window, window_of(stated, Path("model"), longest))
    return window


def _innermost(model: nn.Module) -> nn.Module:
    """Return the module inside wrappers, such as those of data parallelism and of compilers."""
    while _takes_anything(model):
        inner = getattr(model, "module", getattr(model, "_orig_mod", None))
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def _takes_anything(model: nn.Module) -> bool:
    parameters = inspect.signature(type(model).forward).parameters.values()
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)


def _is_divided(model: nn.Module) -> bool:
    """Return True if ranks share layers (tensor parallelism), not only weights to be gathered."""
    shards = 0
    for weights in model.parameters():
        if isinstance(weights, DTensor):
            sharded = [part for part in weights.placements if not part.is_replicate()]
            shards = max(shards, len(sharded))
    # ``fully_shard`` shards every weight once, whatever replicas there are.
    is_gathered = any(isinstance(module, FSDPModule) for module in model.modules())
    return shards > int(is_gathered)


def _batches(
    inputs: Integers, parts: int, window: int, most: int
) -> Iterator[tuple[int, Integers]]:
    """Yield a padded length, and the rows that each part takes, int64 [parts, rows].

    ``inputs``: input tokens of each row.  ``most``: tokens of a batch of one part.  Lengths are
    few, and so are numbers of rows, as compilers and allocators do work for every new shape.  A
    batch is filled up with rows -1, which are empty.
    """
    step = FINE if inputs.max() <= SHORT else COARSE
    lengths = np.minimum(-(-inputs // step) * step, window)
    # The longest first: if it does not fit into memory, the first batch fails.
    for length in np.unique(lengths)[::-1].tolist():
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
    """Return log-probabilities (nats) and how many tokens are likelier, float32 [2, tokens].

    ``logits[line[i], column[i]]`` are those of ``tokens[i]``; beyond ``vocabulary`` they are
    padding.
    """
    if not len(line):
        return torch.zeros(2, 0, device=logits.device)
    device = logits.device
    width = logits.shape[1]
    # The labels of a row share one place, whose softmax is computed once.
    places, place_of = np.unique(line * width + column, return_inverse=True)
    order = np.argsort(place_of, kind="stable")
    place_of = place_of[order]
    tokens = tokens[order]
    step = max(1, LOGITS.get(device.type, LOGITS["cpu"]) // (4 * logits.shape[2]))
    parts = []
    for first in range(0, len(places), step):
        chosen = torch.from_numpy(places[first : first + step]).to(device)
        numbers = _picked(logits, chosen // width, chosen % width)[:, :vocabulary].float()
        logprobs = torch.log_softmax(numbers, dim=-1)
        low, high = np.searchsorted(place_of, [first, first + step])
        rows = torch.from_numpy(place_of[low:high] - first).to(device)
        columns = torch.from_numpy(tokens[low:high]).to(device)[:, None]
        # Comparing takes as much memory as the logits, so it is done for as many places at a time.
        for some_rows, some_columns in zip(rows.split(step), columns.split(step), strict=True):
            of_token = numbers[some_rows]
            likelier = (of_token > of_token.gather(1, some_columns)).sum(dim=1).float()
            parts.append(torch.stack([logprobs[some_rows, some_columns[:, 0]], likelier]))
    back = torch.from_numpy(np.argsort(order)).to(device)
    return torch.cat(parts, dim=1)[:, back]


def _picked(logits: Tensor, line: Tensor, column: Tensor) -> Tensor:
    """Return ``logits[line, column]``, whole even if each rank has a part of the vocabulary."""
    if not isinstance(logits, DTensor):
        return logits[line, column]
    for part in logits.placements:
        if not part.is_replicate() and not part.is_shard(2):
            return logits.full_tensor()[line, column]
    # Only the picked logits are gathered.
    shape = torch.Size([len(line), logits.shape[2]])
    placements = [Shard(1) if part.is_shard() else part for part in logits.placements]
    picked = DTensor.from_local(
        logits.to_local()[line, column],
        logits.device_mesh,
        placements,
        run_check=False,
        shape=shape,
        stride=(shape[1], 1),
    )
    return picked.full_tensor()


@contextmanager
def _undisturbed(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Put ``model`` into eval mode without gradients, and restore everything afterwards."""
    training = model.training
    modes = [(module, module.training) for module in model.modules()]
    with ExitStack() as stack:
        # Not inference mode: tensors that a module caches in it, such as tables of positions, can't
        # take part in the training afterwards.
        stack.enter_context(torch.no_grad())
        if device.type == "cpu":
            stack.enter_context(torch.random.fork_rng([], device_type="cuda"))
        else:
            stack.enter_context(torch.random.fork_rng([device], device_type=device.type))
        # Shapes of the evaluation are not compiled, nor do they evict those of the training.
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        # Older torch reuses weights that were cast here, without gradients, in a later pass of the
        # same autocast.
        stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)
        try:
            model.eval()
            yield
        finally:
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    # Else the gathered weights are used again after the optimizer's step.
                    module.reshard()
            model.train(training)
            for module, mode in modes:
                module.training = mode


class _Ranks:
    """Describe the processes of a job, and exchange values among them.

    There are ``world`` processes, one if no job was started.  Rows are shared in ``parts``, of
    which this process has number ``part``.
    """

    def __init__(self, group: Group) -> None:
        self.world = 1
        self.parts = 1
        self.part = 0
        self._group = group or None
        if dist.is_available() and dist.is_initialized():
            self.world = dist.get_world_size()
            self._device = _exchange_device()
            if group is not False:
                self.parts = dist.get_world_size(self._group)
                self.part = dist.get_rank(self._group)
        if self.part < 0:
            raise UsageError(
                "this process is not in the group that shares the rows; pass its own group"
            )

    def refuse_differences(self, bundle: Bundle, step: int) -> None:
        """Raise on all ranks if their bundles or steps differ."""
        if self.world == 1:
            return
        numbers = torch.tensor([int(bundle.digest[:15], 16), step], device=self._device)
        least = numbers.clone()
        most = numbers.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        if least[0] != most[0]:
            raise StoreError(
                f"processes of the job have different bundles, here {bundle.path}; give all the "
                "same one"
            )
        if least[1] != most[1]:
            raise UsageError(
                f"processes of the job are at steps {int(least[1])} to {int(most[1])}; call it at "
                "the same step"
            )

    def total(self, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the sum over the parts, each of which has 0 for the values of the others."""
        if self.parts == 1:
            return values
        summed = torch.from_numpy(values).to(self._device)
        dist.all_reduce(summed, group=self._group)
        return summed.cpu().numpy()

    def first(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` in the first process; return its JSON value, or raise, on all ranks."""
        if self.world == 1:
            return function()
        is_first = dist.get_rank() == 0
        result: JsonDict = {}
        error = None
        if is_first:
            try:
                result = {"value": function()}
            except Exception as raised:  # the other ranks wait for the result, whatever happened
                result = {"error": str(raised)}
                error = raised
        content = torch.frombuffer(bytearray(json_text(result).encode()), dtype=torch.uint8)
        content = content.to(self._device)
        size = torch.tensor([len(content)], device=self._device)
        dist.broadcast(size, 0)
        if not is_first:
            content = torch.zeros(int(size), dtype=torch.uint8, device=self._device)
        dist.broadcast(content, 0)
        if error is not None:
            raise error
        result = json.loads(bytes(content.cpu().numpy()))
        if "error" in result:
            raise StoreError(f"the first process of the job failed: {result['error']}")
        return result["value"]


def _exchange_device() -> torch.device:
    """Return the device whose tensors the processes can exchange."""
    backend = dist.get_backend()
    accelerator = torch.accelerator.current_accelerator()
    if "gloo" in backend or "mpi" in backend or accelerator is None:
        return torch.device("cpu")
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
