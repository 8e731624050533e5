"""Load networks from folders of weights, and answer in padded batches with those that can.

transformers loads the weights where accelerate places them, and accelerate's hooks move the states
from layer to layer.  Nothing is placed in main memory or on disk, from where every pack would fetch
its weights anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import traceback
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from choicewise.errors import ModelError
from choicewise.models.local import parallel, plain
from choicewise.models.local.causal_lm import Workload
from choicewise.models.local.devices import Footprint, device_name, devices_of, is_shared, to_device
from choicewise.models.local.files import (
    ENCODER_DECODER,
    MASKED,
    ModelKind,
    model_kind,
    quiet,
    readable,
    weight_files,
)
from choicewise.models.local.plain import (
    Sums,
    float32_copy,
    free_bytes,
    largest_difference,
    noise_of,
    running_sums,
)
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Answers, Blanks, Ids, Prompt, Rendition, TokenScores
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.cache import read_user_cache, write_user_cache
from choicewise.util.files import read_text

# Weights that scores of texts don't need: other inputs, further tokens, constants that the code
# computes, and what masked models were trained with to judge whole texts.
_NOT_MISSED = re.compile(
    r"vision|visual|image|audio|speech|multi_modal|mm_proj|\bmtp|inv_freq|masked_bias|attn\.bias$|position_ids$"
    r"|\bpooler\.|\bseq_relationship\.|\bsop_classifier\."
)
# Of quanto: scales of activations, which no file has and transformers leaves at 1, as it takes
# quantised weights alone (``validate_environment`` of its quantizer).
_STAY_ONE = re.compile(r"\.(?:input|output)_scale$")
# Numbers that a model may have beyond those in its files: tables of positions, and constants.
_SLACK = 100_000_000
_PACKED = 16  # weights that a byte in the files of a quantised model may stand for
_BATCH_TOKENS = 4096  # input tokens computed at once, by default
# Bytes of float32 logits that a batch may have, by device.
_LOGIT_BYTES = {"cpu": 200_000_000, "cuda": 2_000_000_000}
# Several texts at once, or one; auto takes padded if that is right.
_RUNGS = ("auto", "padded", "plain")
_EXACT = 1e-3  # nats a token by which padding may change a score in float32
_NARROW = 0.5  # the same in a 16-bit dtype


def load_network(
    folder: Path,
    config: Mapping[str, Any],
    dtype: str,
    device: str,
    trust_remote_code: bool,
    spread: Spread | None = None,
    values: Mapping[str, Tensor] | None = None,
) -> Any:
    """Load the torch module of a folder with this ``config``, in evaluation mode.

    It is on ``device``, or where ``spread`` puts it; if several processes share ``device``, it is
    the part of this one.  ``values`` by name are taken instead of the folder's weight files.

    Quantised weights are loaded where they stay.  Raises ModelError if they can't be computed with,
    and if weights and configuration do not fit: missing ones would be random, and what has no place
    was trained to be used.  Weights of other kinds of input than text, and copies of constants, are
    not missed.
    """
    _refuse_code(folder, config, trust_remote_code)
    kind = model_kind(config)
    is_quantised = "quantization_config" in config
    _refuse_size(folder, kind, _stored(folder, values, is_quantised), trust_remote_code)
    generation = folder / "generation_config.json"
    if generation.exists():
        with readable(folder):
            # Transformers would read a file of any size.
            read_text(generation)

    options = _options(folder, config, device, spread, values)
    loader = getattr(transformers, kind.loader)
    if values is not None:
        loader = getattr(transformers, config["architectures"][0])
    try:
        with quiet():
            model, report = loader.from_pretrained(
                folder if values is None else None,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, where they can be named
                **options,
            )
            if spread is not None:
                spread.refuse_offloaded(model)
            elif not is_quantised and not is_shared(device):
                model = model.to(device)
            model = model.eval()
            if is_quantised and kind is not ENCODER_DECODER:
                # A kernel may not take this device, or these shapes.
                with torch.inference_mode():
                    model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device))
    except ModelError:
        raise
    except Exception as error:
        # Configurations, weights and devices fail in every way there is.
        reason = _conversion_error(error) or str(error)
        raise ModelError(f"{folder} can't be loaded as {kind.name}: {reason}") from error
    if is_quantised and config["quantization_config"].get("quant_method") == "quanto":
        report["missing_keys"] = [
            name for name in report["missing_keys"] if not _STAY_ONE.search(name)
        ]
    _refuse_report(folder, kind, report)
    return model


def _stored(folder: Path, values: Mapping[str, Tensor] | None, is_quantised: bool) -> int:
    """Return how many numbers the weights have room for."""
    if values is not None:
        stored = sum(value.nbytes for value in values.values())
    else:
        stored = sum(file.stat().st_size for file in weight_files(folder))
    return stored * _PACKED if is_quantised else stored


def _options(
    folder: Path,
    config: Mapping[str, Any],
    device: str,
    spread: Spread | None,
    values: Mapping[str, Tensor] | None,
) -> dict[str, Any]:
    """Return the arguments of ``from_pretrained`` that say which weights go to which device."""
    options: dict[str, Any] = {}
    if "quantization_config" in config and device != "cpu":
        options["device_map"] = {"": device}
    if values is not None:
        options["config"] = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        options["state_dict"] = values
    if is_shared(device):
        options |= parallel.placement()
    if spread is not None:
        options |= spread.options
    return options


def _refuse_code(folder: Path, config: Mapping[str, Any], trust_remote_code: bool) -> None:
    """Raise ModelError if the model needs code in its folder, and that is not trusted."""
    if "auto_map" not in config or trust_remote_code:
        return
    if config.get("model_type") in transformers.CONFIG_MAPPING:
        return
    raise ModelError(
        f"{folder} brings its own code (auto_map in config.json). Read it, then load the model "
        "with "
        "load_model(..., trust_remote_code=True)"
    )


def _refuse_report(folder: Path, kind: ModelKind, report: Mapping[str, Any]) -> None:
    """Raise ModelError if transformers reports that weights and configuration do not fit."""
    mismatched = []
    for name, shape, model_shape in report["mismatched_keys"]:
        mismatched.append(f"{name} has shape {list(shape)} instead of {list(model_shape)}")
    problems = {
        "missing_keys": report["missing_keys"],
        "mismatched_keys": mismatched,
        "error_msgs": report["error_msgs"],
    }
    for trouble, names in problems.items():
        if names:
            first = ", ".join(sorted(map(str, names))[:3])
            raise ModelError(
                f"the weights in {folder} do not fit its config.json, so parts of the model would "
                "be random "
                f"({trouble}: {first}; {len(names)} in all); fetch the folder again"
            )
    unused = sorted(name for name in report["unexpected_keys"] if not _NOT_MISSED.search(name))
    if unused:
        first = f"{', '.join(unused[:3])}; {len(unused)} in all"
        raise ModelError(
            f"{folder} holds weights that its config.json does not have ({first}), so the numbers "
            "would be "
            "another model's. Fetch the folder again, or if config.json is right, save it "
            f'without them: python -c "from transformers import {kind.loader} as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )


def _refuse_size(folder: Path, kind: ModelKind, most: int, trust_remote_code: bool) -> None:
    """Raise ModelError if ``config.json`` describes a model of many more numbers than ``most``.

    ``most``: as many as the files have room for, whatever they say of themselves.  The model is
    built without memory for its numbers: loading it would take memory for whatever is described.
    """
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        with quiet(), torch.device("meta"):
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, **options
            )
            model = getattr(transformers, kind.loader).from_config(config, **options)
    except Exception:
        # Loading fails likewise, and says why.
        return
    described = sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))
    if described > most + _SLACK:
        raise ModelError(
            f"{folder}/config.json describes a model of {described:,} numbers, but the weights "
            f"hold at most {most:,}; "
            "fetch the folder again"
        )


class Spread:
    """The layers of the model in ``folder`` on the devices called ``device``.

    ``needed``: what the model needs.  Raises ModelError, with the bytes, if the weights do not fit
    beside what it takes to compute on each device.
    """

    def __init__(self, folder: Path, device: str, needed: Footprint) -> None:
        self._folder = folder
        self._device = device
        self._needed = needed
        devices = map(torch.device, devices_of(device))
        self._free = {part.index: free_bytes(part) for part in devices}
        self._room = {index: max(0, size - needed.workspace) for index, size in self._free.items()}
        if needed.weights > sum(self._room.values()):
            raise self._too_large()

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of ``from_pretrained`` that place the layers."""
        return {"device_map": "auto", "max_memory": {**self._room, "cpu": 0}}

    def refuse_offloaded(self, model: Any) -> None:
        """Raise ModelError if part of ``model`` lies elsewhere: it does not fit layer by layer."""
        if not {"cpu", "disk"}.isdisjoint(map(str, model.hf_device_map.values())):
            raise self._too_large()

    def _too_large(self) -> ModelError:
        sizes = ", ".join(f"{size:,}" for size in self._free.values())
        needed = self._needed
        return ModelError(
            f"{self._folder} does not fit on {self._device}. It has {needed.weights:,} bytes of "
            "weights, in "
            f"layers of up to {needed.layer:,}, and computes with {needed.workspace:,} per device. "
            "Free are "
            f"{sum(self._free.values()):,} ({sizes}). Use more or larger GPUs, a narrower dtype, "
            "quantised "
            "weights, or smaller packs"
        )


@dataclass(eq=False, repr=False)
class NetworkModel:
    """A model of a loaded network; subclasses answer.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``.  ``rung``: the compute
    path that alone is tried, or ``auto``; ``batch_tokens``: the most tokens computed at once.
    ``paths`` remembers the self-check, for other processes.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    digest: str
    window: int
    rung: str = "auto"
    batch_tokens: int | None = None
    paths: PathCache | None = None
    kind_name = ""
    recipe = None

    def __post_init__(self) -> None:
        self.dtype = str(self.model.dtype).removeprefix("torch.")
        self.device = device_name(self.model)
        self.vocabulary = int(self.model.config.get_text_config().vocab_size)
        self._work = Workload()
        self._checked: SelfCheck | None = None

    @property
    def computed(self) -> int:
        """Return the input tokens that went through the model, with those of the self-check."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Return the input tokens needed for all questions so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    def objection(self, question: Prompt) -> str | None:
        """Return None: it answers every question of the kinds that it supports."""
        return None

    def refuse_tokens(self, tokens: Ids, inputs: int | None = None) -> None:
        """Raise ModelError if ``tokens`` are too many, or the model does not know one.

        ``inputs``: how many are inputs before a last one that is not; by default all are.
        """
        if inputs is None:
            inputs = sent = len(tokens)
        else:
            sent = inputs + 1
        if inputs > self.window:
            raise ModelError(
                f"{sent} tokens exceed the window of {self.name} ({self.window}); "
                "use fewer shots, or a protocol that cuts"
            )
        if tokens.max() >= self.vocabulary:
            raise ModelError(
                f"the tokenizer of {self.name} uses token {tokens.max()}, but the model has only "
                f"{self.vocabulary}; the tokenizer belongs to another model"
            )


class PathCache:
    """The self-check of the model that ``identity`` describes (what JSON can hold), on this
    machine.

    What a kernel does depends on the model, its dtype, the device, the versions of what computes
    and on our own paths, so all of them name an entry.  Of what may still differ, such as a driver,
    each run notices by its spot checks, and ``choicewise check`` measures anew.
    """

    def __init__(self, identity: Sequence[object]) -> None:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        devices = [str(torch.cuda.get_device_properties(index)) for index in range(gpus)]
        machine = [
            platform.machine(),
            torch.backends.cpu.get_cpu_capability(),
            torch.version.cuda,
            devices,
        ]
        # The code of our compute paths is hashed, as a version may be under way.
        code = hashlib.sha256()
        files = sorted(Path(__file__).parent.glob("*.py"))
        for file in (*files, Path(__file__).parents[2] / "engine.py"):
            code.update(file.read_bytes())
        versions = [torch.__version__, transformers.__version__]
        versions += [version("choicewise"), code.hexdigest()]
        self._key = json.dumps([*identity, machine, versions])

    def load(self) -> SelfCheck | None:
        """Return the stored self-check; None if there is none, or a damaged one."""
        entry = read_user_cache("paths", self._key)
        try:
            fields = json.loads(entry or "null")
            fields["trials"] = tuple(Trial(**trial) for trial in fields["trials"])
            return SelfCheck(**fields)
        except (ValueError, TypeError, KeyError):
            return None

    def store(self, checked: SelfCheck) -> None:
        """Store the self-check for the next process."""
        write_user_cache("paths", self._key, json.dumps(asdict(checked)))


@dataclass(eq=False, repr=False)
class PaddedModel(NetworkModel, ABC):
    """A transformers model that answers one kind of question, and refuses others with a ModelError.

    ``rung`` is one of :data:`_RUNGS`.  A question has the same answer within the noise of the
    self-check, whatever else is asked.
    """

    def __post_init__(self) -> None:
        if self.rung not in _RUNGS:
            raise ModelError(
                f"rung is {self.rung!r}; for {type(self).__name__} it must be one of "
                f"{', '.join(_RUNGS)}"
            )
        super().__post_init__()

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return how exact the padded path is, as measured last, or now; None if the rung is plain."""
        if self._checked is None and self.rung != "plain":
            self._checked = check(self)
            if self.rung == "padded" and self._checked.rung != "padded":
                raise ModelError(f"{self.name}: {self._checked.trials[0].refused}; use rung auto")
            if self.paths is not None:
                self.paths.store(self._checked)
        return self._checked

    def check(self, depth: int) -> SelfCheck | None:
        """Return the self-check, measured or taken from ``paths`` at first.

        It is None for a ``depth`` of 0 before that.
        """
        if depth and self._checked is None and self.rung != "plain":
            if self.paths is not None:
                self._checked = self.paths.load()
            return self._checked or self.selfcheck
        return self._checked

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers, the longest texts first."""
        accepted = [self.accepted(question) for question in questions]
        checked = self.check(len(accepted))
        self._work.planned = self._work.computed + sum(question.inputs for question in accepted)
        is_padded = checked is not None and checked.rung == "padded"
        try:
            yield from self.scores(accepted, is_padded)
        finally:
            self._work.settle()

    @torch.inference_mode()
    def scores(self, questions: Sequence[Any], padded: bool) -> Answers:
        """Yield the answers, from rows of several questions at once if ``padded``."""
        passes: list[_Pass] = []
        for index, question in enumerate(questions):
            passes += self.passes(index, question)
        needed = Counter(row.index for row in passes)
        parts_of = defaultdict[int, dict[int, TokenScores]](dict)
        for batch in self._batches(passes, padded):
            for row, scores in zip(batch, self.compute(questions, batch), strict=True):
                parts_of[row.index][row.part] = scores
                self._work.computed += row.tokens
                if len(parts_of[row.index]) == needed[row.index]:
                    parts = parts_of.pop(row.index)
                    yield row.index, TokenScores.joined([parts[part] for part in sorted(parts)])

    def _batches(self, passes: list[_Pass], padded: bool) -> Iterator[list[_Pass]]:
        """Yield passes of about one length together."""
        most_tokens = self.batch_tokens or _BATCH_TOKENS
        logit_bytes = _LOGIT_BYTES.get(self.model.device.type, _LOGIT_BYTES["cpu"])
        most_logits = logit_bytes // (4 * self.vocabulary)
        batch: list[_Pass] = []
        for row in sorted(passes, key=lambda row: (-row.tokens, row.index, row.part)):
            rows = [*batch, row]
            # The first row of a batch is the longest.
            tokens = len(rows) * rows[0].tokens
            logits = len(rows) * max(other.width for other in rows)
            is_full = not padded or tokens > most_tokens or logits > most_logits
            if batch and is_full:
                yield batch
                rows = [row]
            batch = rows
        if batch:
            yield batch

    def ids(self, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        """Return rows padded on the right with 0, and the mask of tokens; int64 [rows, tokens]."""
        tokens = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = ids
            mask[row, : len(ids)] = 1
        return to_device(tokens, self.model.device), to_device(mask, self.model.device)

    @abstractmethod
    def accepted(self, question: Prompt) -> Any:
        """Return ``question``.  Raises ModelError for a kind that the model does not answer."""

    @abstractmethod
    def passes(self, index: int, question: Any) -> list[_Pass]:
        """Return the passes that ``question``, number ``index``, takes."""

    @abstractmethod
    def compute(self, questions: Sequence[Any], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
        """Yield the scores of each pass, in order."""

    @abstractmethod
    def plain_scores(self, question: Any) -> TokenScores:
        """Return the answer without what :meth:`compute` does to save time: the reference."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Return questions about random tokens, by which padding is compared with the reference."""


@dataclass(eq=False, repr=False)
class EncoderDecoder(PaddedModel):
    """A transformers encoder-decoder that answers :class:`~choicewise.questions.Rendition`.

    Questions of a batch about the same source share its encoder pass.  Raises ModelError if the
    configuration names no token that starts the decoder's text.
    """

    supports = ENCODER_DECODER.supports

    def __post_init__(self) -> None:
        super().__post_init__()
        start = getattr(self.model.config, "decoder_start_token_id", None)
        if start is None:
            generation = getattr(self.model, "generation_config", None)
            start = getattr(generation, "decoder_start_token_id", None)
        if start is None:
            raise ModelError(
                f"config.json of {self.name} has no decoder_start_token_id to start its decoder "
                "with; "
                "fetch the folder again, or add the token there"
            )
        self._start = np.asarray([start], dtype=np.int32)

    def accepted(self, question: Prompt) -> Rendition:
        """Return a rendition whose two texts fit."""
        if not isinstance(question, Rendition):
            raise ModelError(
                f"{self.name} is an encoder-decoder and can't answer {type(question).__name__}"
            )
        for tokens in (question.source, question.continuation):
            self.refuse_tokens(tokens)
        return question

    def passes(self, index: int, question: Rendition) -> list[_Pass]:
        """Return one pass."""
        return [_Pass(index, 0, question.inputs, len(question.continuation))]

    def compute(
        self, questions: Sequence[Rendition], batch: Sequence[_Pass]
    ) -> Iterator[TokenScores]:
        """Yield scores from one encoder pass for every distinct source, and one decoder pass."""
        renditions = [questions[row.index] for row in batch]
        sources = {rendition.source.tobytes(): rendition.source for rendition in renditions}
        row_of_source = {key: row for row, key in enumerate(sources)}
        tokens, mask = self.ids(list(sources.values()))
        states = self.model.get_encoder()(input_ids=tokens, attention_mask=mask)[0]
        numbers = [row_of_source[rendition.source.tobytes()] for rendition in renditions]
        rows = torch.tensor(numbers, device=mask.device)
        written, _ = self.ids([self._before(rendition.continuation) for rendition in renditions])
        output = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[rows.to(states.device)]),
            attention_mask=mask[rows],
            decoder_input_ids=written,
            use_cache=False,
        )
        for logits, rendition in zip(output.logits, renditions, strict=True):
            scored = logits[: len(rendition.continuation), : self.vocabulary].float()
            yield plain.scores(scored, rendition.continuation)

    @torch.inference_mode()
    def plain_scores(self, question: Rendition) -> TokenScores:
        """Return the answer from one forward pass without padding or mask."""
        source, _ = self.ids([question.source])
        written, _ = self.ids([self._before(question.continuation)])
        logits = self.model(input_ids=source, decoder_input_ids=written, use_cache=False).logits
        return plain.scores(logits[0, :, : self.vocabulary].float(), question.continuation)

    def _before(self, continuation: Ids) -> Ids:
        """Return what the decoder reads: the start, and all tokens but the last."""
        return np.concatenate([self._start, continuation[:-1]])

    def probe(self) -> list[Rendition]:
        """Draw sources of many lengths, each with a short continuation and a longer one."""
        random = np.random.default_rng(0)
        texts = []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 8).astype(int)):
            source = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            for length in (1, int(tokens)):
                continuation = random.integers(0, self.vocabulary, length, dtype=np.int32)
                texts.append(Rendition(source, continuation))
        return texts


@dataclass(eq=False, repr=False)
class MaskedLM(PaddedModel):
    """A transformers masked model that answers :class:`~choicewise.questions.Blanks`.

    It computes a pass for every blank.
    """

    supports = MASKED.supports

    def accepted(self, question: Prompt) -> Blanks:
        """Return blanks in a text that fits."""
        if not isinstance(question, Blanks):
            raise ModelError(
                f"{self.name} is a masked model and can't answer {type(question).__name__}"
            )
        self.refuse_tokens(question.text)
        self.refuse_tokens(np.asarray([question.mask]))
        return question

    def passes(self, index: int, question: Blanks) -> list[_Pass]:
        """Return one pass for every scored token."""
        return [_Pass(index, part, len(question.text), 1) for part in range(len(question.places))]

    def compute(self, questions: Sequence[Blanks], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
        """Yield scores from logits at the blanks alone.

        A vocabulary at every token takes more than the rest of the model.
        """
        rows = [_row(questions[row.index], row.part) for row in batch]
        blanks = [int(questions[row.index].places[row.part]) for row in batch]
        tokens, mask = self.ids(rows)
        logits = self._logits_at(blanks, tokens, mask)[:, : self.vocabulary].float()
        for number, row in enumerate(batch):
            token = questions[row.index].continuation[row.part : row.part + 1]
            yield plain.scores(logits[number : number + 1], token)

    def _logits_at(self, positions: Sequence[int], tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits at one position of each row [rows, vocabulary]: the head sees no others."""

        def select(module: Any, inputs: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            rows = torch.arange(len(positions), device=hidden.device)
            columns = torch.tensor(positions, device=hidden.device)
            output.last_hidden_state = hidden[rows, columns][:, None]
            return output

        hook = self.model.base_model.register_forward_hook(select)
        try:
            logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits
        finally:
            hook.remove()
        return logits[:, 0]

    @torch.inference_mode()
    def plain_scores(self, question: Blanks) -> TokenScores:
        """Return the answer from one forward pass for every blank, with logits at all tokens."""
        parts = []
        for row, position in zip(question.rows(), question.places, strict=True):
            tokens, _ = self.ids([row])
            logits = self.model(input_ids=tokens).logits[0, position : position + 1]
            scored = logits[:, : self.vocabulary].float()
            parts.append(plain.scores(scored, question.text[position : position + 1]))
        return TokenScores.joined(parts)

    def probe(self) -> list[Blanks]:
        """Draw texts of many lengths, each with blanks at its start, in its middle and at its end."""
        random = np.random.default_rng(0)
        texts = []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 12).astype(int)):
            text = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            blanks = np.unique([0, tokens // 2, tokens - 1]).astype(np.int32)
            texts.append(Blanks(text, blanks, blanks + 1, int(self.tokenizer.mask_id or 0)))
        return texts


@torch.inference_mode()
def check(model: PaddedModel) -> SelfCheck:
    """Compare the padded path with one text at a time on random texts, and choose one of them.

    The noise of a 16-bit model is its distance from a float32 copy, if one fits in memory.  Raises
    ModelError for a model that answers with NaN or infinity.
    """
    questions = model.probe()
    truth = _plain_sums(model, questions)
    if not np.isfinite(np.concatenate(truth)).all():
        raise ModelError(
            f"{model.name} answers random tokens with NaN or infinity: its weights are damaged or "
            "too large for "
            f"{model.dtype}; try float32, or download them again"
        )
    padded: Sums = [np.full(len(sums), np.nan) for sums in truth]
    for index, scores in model.scores(questions, padded=True):
        padded[index] = running_sums(scores.logprobs)
    difference = largest_difference(padded, truth)
    tolerance = _EXACT if model.model.dtype.itemsize >= 4 else _NARROW
    floor = difference
    noise = noise_of(padded, truth)
    copied = float32_copy(model.model)
    if copied is not None:
        before = model.model
        model.model = copied
        try:
            exact = _plain_sums(model, questions)
        finally:
            model.model = before
        floor = largest_difference(exact, truth)
        noise = max(noise, noise_of(exact, truth))
    rung = "padded"
    cost = "padded batches"
    trials: tuple[Trial, ...] = (Trial("padded", difference, None),)
    if difference > tolerance:
        wrong = f"differs by {difference:.2g} nats ({tolerance:.2g} allowed)"
        rung = "plain"
        cost = "one text at a time"
        trials = (Trial("padded", difference, wrong), Trial("plain", 0.0, None))
    return SelfCheck(
        rung=rung,
        difference=difference if rung == "padded" else 0.0,
        floor=floor,
        tolerance=tolerance,
        noise=noise,
        depth=_depth(model, questions),
        trials=trials,
        cost=cost,
    )


def _plain_sums(model: PaddedModel, questions: Sequence[Any]) -> Sums:
    return [running_sums(model.plain_scores(question).logprobs) for question in questions]


def _depth(model: PaddedModel, questions: Sequence[Any]) -> int:
    """Return the most input tokens of a pass."""
    depth = 0
    for question in questions:
        for row in model.passes(0, question):
            depth = max(depth, row.tokens)
    return depth


@dataclass(frozen=True, slots=True)
class _Pass:
    """A row of a batch: ``part`` of what question ``index`` needs, with its input tokens, and those
    with logits.
    """

    index: int
    part: int
    tokens: int
    width: int


def _row(question: Blanks, part: int) -> Any:
    row = question.text.copy()
    row[question.places[part] : question.ends[part]] = question.mask
    return row


def _conversion_error(error: Exception) -> str | None:
    """Return why weights could not be brought into the form of the model, or None.

    Transformers says it only in a log.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        reasons = getattr(frame.f_locals.get("loading_info"), "conversion_errors", None)
        if reasons:
            name, reason = next(iter(reasons.items()))
            last = [line.strip() for line in str(reason).splitlines() if line.strip()][-1]
            return f"its weights can't be merged into {name}: {last}; fetch the folder again"
    return None
