"""Networks: from a folder of weights to devices, what all have in common, and those that answer in padded batches.

transformers loads the weights where accelerate places them, and accelerate's hooks move what goes from layer to layer.
Nothing is placed in main memory or on disk, from where every pack would fetch its weights anew.
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

_NOT_MISSED = re.compile(
    r"vision|visual|image|audio|speech|multi_modal|mm_proj|\bmtp|inv_freq|masked_bias|attn\.bias$|position_ids$"
    r"|\bpooler\.|\bseq_relationship\.|\bsop_classifier\."
)
"""Weights that scores of texts don't need: other inputs, further tokens, constants that the code computes itself, and
what masked models were trained with to judge whole texts."""

_STAY_ONE = re.compile(r"\.(?:input|output)_scale$")
"""Of quanto: scales of activations, which no file has and transformers leaves at 1, as it takes quantised weights alone
(``validate_environment`` of its quantizer)."""

_BATCH_TOKENS = 4096  # input tokens computed at once, by default
_LOGIT_BYTES = {
    "cpu": 200_000_000,
    "cuda": 2_000_000_000,
}  # in float32 that a batch may have, by device
_RUNGS = (
    "auto",
    "padded",
    "plain",
)  # several texts at once, or one; auto: padded where that is right
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
    """The torch module of a folder with this ``config``, in evaluation mode on ``device``, or where ``spread`` puts it.

    ``values`` by name take the place of the folder's weight files.  Where ``device`` is what several processes share,
    this one's part of it.

    Quantised weights are loaded where they stay.  Raises ModelError when they can't be computed with, and when weights
    and configuration do not fit: missing ones would be random, and what has no place was trained to be used.  Weights
    of other kinds of input than text, and copies of constants, are not missed.
    """
    if (
        "auto_map" in config
        and not trust_remote_code
        and config.get("model_type") not in transformers.CONFIG_MAPPING
    ):
        raise ModelError(
            f"{folder} needs code of its own to run (auto_map in config.json); read that code, "
            "then pass trust_remote_code=True to load_model"
        )
    kind, quantised = model_kind(config), "quantization_config" in config
    if values is None:
        stored = sum(file.stat().st_size for file in weight_files(folder))
    else:
        stored = sum(value.nbytes for value in values.values())
    _refuse_size(folder, kind, stored * (_PACKED if quantised else 1), trust_remote_code)
    at_once: dict[str, Any] = {"device_map": {"": device}} if quantised and device != "cpu" else {}
    generation = folder / "generation_config.json"
    if generation.exists():
        with readable(folder):
            read_text(generation)  # transformers would read a file of any size
    loader = getattr(transformers, kind.loader)
    source: Path | None = folder
    if values is not None:
        loader = getattr(transformers, config["architectures"][0])
        source = None
        at_once["config"] = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        at_once["state_dict"] = values
    if is_shared(device):
        at_once |= parallel.placement()
    if spread is not None:
        at_once |= spread.options
    try:
        with quiet():
            model, report = loader.from_pretrained(
                source,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, where they can be named
                **at_once,
            )
            if spread is not None:
                spread.refuse_offloaded(model)
            placed = quantised or spread is not None or is_shared(device)
            model = model.eval() if placed else model.to(device).eval()
            if (
                quantised and kind is not ENCODER_DECODER
            ):  # a kernel may not take this device, or these shapes
                with torch.inference_mode():
                    model(input_ids=torch.zeros((1, 2), dtype=torch.long, device=model.device))
    except ModelError:
        raise
    except Exception as error:  # configurations, weights and devices fail in every way there is
        reason = _conversion_error(error) or str(error)
        raise ModelError(f"{folder} can't be loaded as {kind.name}: {reason}") from error
    if quantised and config["quantization_config"].get("quant_method") == "quanto":
        report["missing_keys"] = [
            name for name in report["missing_keys"] if not _STAY_ONE.search(name)
        ]
    mismatched = report["mismatched_keys"]
    report["mismatched_keys"] = [
        f"{name} has shape {[*own]} instead of {[*due]}" for name, own, due in mismatched
    ]
    for trouble in ("missing_keys", "mismatched_keys", "error_msgs"):
        if wrong := sorted(map(str, report[trouble])):
            raise ModelError(
                f"the weights in {folder} do not fit its config.json, and parts of the model would be random "
                f"({trouble}: {', '.join(wrong[:3])}; {len(wrong)} in all); fetch the folder again"
            )
    if unused := sorted(name for name in report["unexpected_keys"] if not _NOT_MISSED.search(name)):
        shown = f"{', '.join(unused[:3])}; {len(unused)} in all"
        raise ModelError(
            f"{folder} holds weights for which the model of its config.json has no place ({shown}), so that its "
            "numbers would be another model's; fetch the folder again, or, if config.json is right, save it "
            f'without them: python -c "from transformers import {kind.loader} as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    return model


_SLACK = 100_000_000
"""Numbers that a model may have beyond those in its files: tables of positions, and constants."""

_PACKED = 16
"""Weights that one byte in the files of a quantised model may stand for."""


def _refuse_size(folder: Path, kind: ModelKind, most: int, trust_remote_code: bool) -> None:
    """Raise ModelError if ``config.json`` describes a model of many more numbers than ``most``.

    ``most``: as many as the files have room for, whatever they say of themselves.  The model is built without memory
    for its numbers: loading it would take memory for whatever is described.
    """
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        with quiet(), torch.device("meta"):
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, **options
            )
            model = getattr(transformers, kind.loader).from_config(config, **options)
    except Exception:
        return  # loading fails likewise, and says why
    described = sum(each.numel() for each in (*model.parameters(), *model.buffers()))
    if described > most + _SLACK:
        raise ModelError(
            f"{folder}/config.json describes a model of {described:,} numbers, but the weights hold {most:,} at most;"
            " fetch the folder again"
        )


class Spread:
    """Where the model in ``folder``, of which it is known what is ``needed``, may lie on the devices called ``device``.

    Raises ModelError, with the bytes, where the weights do not fit beside what it takes to compute on each.
    """

    def __init__(self, folder: Path, device: str, needed: Footprint) -> None:
        self._folder, self._device, self._needed = folder, device, needed
        self._free = {
            place.index: free_bytes(place) for place in map(torch.device, devices_of(device))
        }
        self._room = {index: max(0, size - needed.workspace) for index, size in self._free.items()}
        if needed.weights > sum(self._room.values()):
            raise self._too_large()

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``from_pretrained``."""
        return {"device_map": "auto", "max_memory": {**self._room, "cpu": 0}}

    def refuse_offloaded(self, model: Any) -> None:
        """ModelError where part of ``model`` lies elsewhere: it fits as a whole, but not layer by layer."""
        if {str(place) for place in model.hf_device_map.values()} & {"cpu", "disk"}:
            raise self._too_large()

    def _too_large(self) -> ModelError:
        each = ", ".join(f"{size:,}" for size in self._free.values())
        needed = self._needed
        return ModelError(
            f"{self._folder} does not fit on {self._device}: it has {needed.weights:,} bytes of weights, in layers of "
            f"up to {needed.layer:,}, and takes {needed.workspace:,} on each device to compute; free are "
            f"{sum(self._free.values()):,} ({each}); use more or larger GPUs, a narrower dtype, quantised weights, or "
            "packs of fewer tokens"
        )


@dataclass(eq=False, repr=False)
class NetworkModel:
    """What models of a loaded network have in common.

    ``model`` is the torch module, ``vocabulary`` its ``config.vocab_size``.  ``rung``: the compute path that alone is
    tried, or ``auto``; ``batch_tokens``: the most tokens computed at once.  ``paths`` remembers the self-check, for
    other processes.
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
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._work.computed

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return max(self._work.planned, self._work.computed)

    def objection(self, question: Prompt) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def refuse_tokens(self, tokens: Ids, inputs: int | None = None) -> None:
        """ModelError where ``tokens`` are too many, or the model does not know one.

        ``inputs``: how many are inputs before a last one that is not; by default all are.
        """
        sent, inputs = (len(tokens), len(tokens)) if inputs is None else (inputs + 1, inputs)
        if inputs > self.window:
            raise ModelError(
                f"{sent} tokens are too many for {self.name}, whose window is {self.window}; "
                "use a protocol with fewer shots or one that cuts"
            )
        if tokens.max() >= self.vocabulary:
            raise ModelError(
                f"the tokenizer of {self.name} uses token {tokens.max()}, but the model knows only "
                f"{self.vocabulary}; the tokenizer belongs to another model"
            )


class PathCache:
    """The self-check of the model that ``identity`` describes (what JSON can hold), on this machine.

    What a kernel does depends on the model, its dtype, the device, the versions of what computes and on our own paths,
    so all of them name an entry.  Of what may still differ, such as a driver, each run notices by its spot checks, and
    ``choicewise check`` measures anew.
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
        code = hashlib.sha256()  # our compute paths as they stand: a version may be under way
        for file in (
            *sorted(Path(__file__).parent.glob("*.py")),
            Path(__file__).parents[2] / "engine.py",
        ):
            code.update(file.read_bytes())
        versions = [
            torch.__version__,
            transformers.__version__,
            version("choicewise"),
            code.hexdigest(),
        ]
        self._key = json.dumps([*identity, machine, versions])

    def load(self) -> SelfCheck | None:
        """As it was stored; None where nothing is, or what is damaged."""
        entry = read_user_cache("paths", self._key)
        try:
            fields = json.loads(entry or "null")
            return SelfCheck(
                **{**fields, "trials": tuple(Trial(**trial) for trial in fields["trials"])}
            )
        except (ValueError, TypeError, KeyError):
            return None

    def store(self, checked: SelfCheck) -> None:
        """For the next process."""
        write_user_cache("paths", self._key, json.dumps(asdict(checked)))


@dataclass(eq=False, repr=False)
class PaddedModel(NetworkModel, ABC):
    """A transformers model that answers one kind of question, all others being refused with a ModelError.

    ``rung`` is one of :data:`_RUNGS`.  The same question has the same answer within the noise of the self-check,
    whatever else is asked.
    """

    def __post_init__(self) -> None:
        if self.rung not in _RUNGS:
            raise ModelError(
                f"rung is {self.rung!r}; for {type(self).__name__} it must be one of {', '.join(_RUNGS)}"
            )
        super().__post_init__()

    @property
    def selfcheck(self) -> SelfCheck | None:
        """How exact the padded path is on this model, as measured last, or now; None where the rung is plain."""
        if self._checked is None and self.rung != "plain":
            self._checked = check(self)
            if self.rung == "padded" and self._checked.rung != "padded":
                raise ModelError(
                    f"{self.name}: {self._checked.trials[0].refused}; choose the rung auto"
                )
            if self.paths is not None:
                self.paths.store(self._checked)
        return self._checked

    def check(self, depth: int) -> SelfCheck | None:
        """The self-check, measured or taken from ``paths`` when first asked; None for a ``depth`` of 0 before that."""
        if depth and self._checked is None and self.rung != "plain":
            self._checked = None if self.paths is None else self.paths.load()
            return self._checked or self.selfcheck
        return self._checked

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers, the longest texts first."""
        asked = [self.accepted(question) for question in questions]
        checked = self.check(len(asked))
        self._work.planned = self._work.computed + sum(question.inputs for question in asked)
        padded = checked is not None and checked.rung == "padded"
        try:
            yield from self.scores(asked, padded)
        finally:
            self._work.settle()

    @torch.inference_mode()
    def scores(self, questions: Sequence[Any], padded: bool) -> Answers:
        """The answers, from rows of several questions at once where ``padded``, else from one row at a time."""
        passes = [
            each
            for index, question in enumerate(questions)
            for each in self.passes(index, question)
        ]
        needed, known = (
            Counter(each.index for each in passes),
            defaultdict[int, dict[int, TokenScores]](dict),
        )
        for batch in self._batches(passes, padded):
            for each, scores in zip(batch, self.compute(questions, batch), strict=True):
                known[each.index][each.part] = scores
                self._work.computed += each.tokens
                if len(known[each.index]) == needed[each.index]:
                    parts = known.pop(each.index)
                    yield each.index, TokenScores.joined([parts[part] for part in sorted(parts)])

    def _batches(self, passes: list[_Pass], padded: bool) -> Iterator[list[_Pass]]:
        """Passes of about one length together."""
        most = self.batch_tokens or _BATCH_TOKENS
        widest = _LOGIT_BYTES.get(self.model.device.type, _LOGIT_BYTES["cpu"]) // (
            4 * self.vocabulary
        )
        batch: list[_Pass] = []
        for each in sorted(passes, key=lambda one: (-one.tokens, one.index, one.part)):
            longest, rows = (batch or [each])[0].tokens, len(batch) + 1
            width = max(one.width for one in [*batch, each])
            if batch and (not padded or rows * longest > most or rows * width > widest):
                yield batch
                batch = []
            batch.append(each)
        if batch:
            yield batch

    def ids(self, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        """Rows padded on the right with 0, and the mask that says which are tokens; int64 [rows, tokens]."""
        tokens, mask = np.zeros((2, len(rows), max(map(len, rows))), dtype=np.int64)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)], mask[row, : len(ids)] = ids, 1
        return to_device(tokens, self.model.device), to_device(mask, self.model.device)

    @abstractmethod
    def accepted(self, question: Prompt) -> Any:
        """``question``, of the kind that the model answers; ModelError for any other."""

    @abstractmethod
    def passes(self, index: int, question: Any) -> list[_Pass]:
        """The passes that ``question``, number ``index``, takes."""

    @abstractmethod
    def compute(self, questions: Sequence[Any], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
        """The scores of each pass, in order."""

    @abstractmethod
    def plain_scores(self, question: Any) -> TokenScores:
        """The answer without anything that :meth:`compute` does to save time: the reference."""

    @abstractmethod
    def probe(self) -> list[Any]:
        """Questions about random tokens that show whether padding changes their answers."""


@dataclass(eq=False, repr=False)
class EncoderDecoder(PaddedModel):
    """A transformers encoder-decoder that answers :class:`~choicewise.questions.Rendition`.

    Questions of a batch about the same source share its encoder pass.  Raises ModelError where the configuration names
    no token that starts the decoder's text.
    """

    supports = ENCODER_DECODER.supports

    def __post_init__(self) -> None:
        super().__post_init__()
        configs = self.model.config, getattr(self.model, "generation_config", None)
        named = (getattr(config, "decoder_start_token_id", None) for config in configs)
        if not (starts := [token for token in named if token is not None]):
            raise ModelError(
                f"config.json of {self.name} names no decoder_start_token_id, with which its decoder would start; "
                "fetch the folder again, or name the token there"
            )
        self._start = np.asarray(starts[:1], dtype=np.int32)

    def accepted(self, question: Prompt) -> Rendition:
        """A rendition whose two texts fit."""
        if not isinstance(question, Rendition):
            raise ModelError(
                f"{self.name} is an encoder-decoder and can't answer {type(question).__name__}"
            )
        for tokens in (question.source, question.continuation):
            self.refuse_tokens(tokens)
        return question

    def passes(self, index: int, question: Rendition) -> list[_Pass]:
        """One."""
        return [_Pass(index, 0, question.inputs, len(question.continuation))]

    def compute(
        self, questions: Sequence[Rendition], batch: Sequence[_Pass]
    ) -> Iterator[TokenScores]:
        """From one encoder pass for every distinct source, and one decoder pass."""
        asked = [questions[each.index] for each in batch]
        sources = {question.source.tobytes(): question.source for question in asked}
        number = {key: row for row, key in enumerate(sources)}
        tokens, mask = self.ids(list(sources.values()))
        states = self.model.get_encoder()(input_ids=tokens, attention_mask=mask)[0]
        rows = torch.tensor(
            [number[question.source.tobytes()] for question in asked], device=mask.device
        )
        written, _ = self.ids([self._before(question.continuation) for question in asked])
        logits = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[rows.to(states.device)]),
            attention_mask=mask[rows],
            decoder_input_ids=written,
            use_cache=False,
        ).logits
        for row, question in enumerate(asked):
            own = logits[row, : len(question.continuation), : self.vocabulary].float()
            yield plain.scores(own, question.continuation)

    @torch.inference_mode()
    def plain_scores(self, question: Rendition) -> TokenScores:
        """The answer from one forward pass without padding or mask."""
        source, written = (
            self.ids([tokens])[0]
            for tokens in (question.source, self._before(question.continuation))
        )
        logits = self.model(input_ids=source, decoder_input_ids=written, use_cache=False).logits
        return plain.scores(logits[0, :, : self.vocabulary].float(), question.continuation)

    def _before(self, continuation: Ids) -> Ids:
        """What the decoder has read when it writes each token of ``continuation``."""
        return np.concatenate([self._start, continuation[:-1]])

    def probe(self) -> list[Rendition]:
        """Random sources of many lengths, each with a short continuation and a longer one."""
        random, texts = np.random.default_rng(0), []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 8).astype(int)):
            source = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            written = (
                random.integers(0, self.vocabulary, length, dtype=np.int32)
                for length in (1, int(tokens))
            )
            texts += [Rendition(source, continuation) for continuation in written]
        return texts


@dataclass(eq=False, repr=False)
class MaskedLM(PaddedModel):
    """A transformers masked model that answers :class:`~choicewise.questions.Blanks`: a pass for every blank."""

    supports = MASKED.supports

    def accepted(self, question: Prompt) -> Blanks:
        """Blanks in a text that fits."""
        if not isinstance(question, Blanks):
            raise ModelError(
                f"{self.name} is a masked model and can't answer {type(question).__name__}"
            )
        self.refuse_tokens(question.text)
        self.refuse_tokens(np.asarray([question.mask]))
        return question

    def passes(self, index: int, question: Blanks) -> list[_Pass]:
        """One for every scored token."""
        return [_Pass(index, part, len(question.text), 1) for part in range(len(question.places))]

    def compute(self, questions: Sequence[Blanks], batch: Sequence[_Pass]) -> Iterator[TokenScores]:
        """From logits at the blanks alone, as a vocabulary at every token takes more than the rest of the model."""
        asked = [(questions[each.index], each.part) for each in batch]
        tokens, mask = self.ids([_row(question, part) for question, part in asked])
        places = [int(question.places[part]) for question, part in asked]
        logits = self._logits_at(places, tokens, mask)[:, : self.vocabulary].float()
        for row, (question, part) in enumerate(asked):
            yield plain.scores(logits[row : row + 1], question.continuation[part : part + 1])

    def _logits_at(self, places: Sequence[int], tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits at one place of each row, shape [rows, vocabulary]: the model's own head sees these states only."""

        def select(module: Any, inputs: Any, output: Any) -> Any:
            hidden = output.last_hidden_state
            rows, columns = (
                torch.tensor(each, device=hidden.device) for each in (range(len(places)), places)
            )
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
        """The answer from one forward pass for every blank, without padding or mask, logits everywhere."""
        parts = []
        for row, place in zip(question.rows(), question.places, strict=True):
            logits = (
                self.model(input_ids=self.ids([row])[0])
                .logits[0, place : place + 1, : self.vocabulary]
                .float()
            )
            parts.append(plain.scores(logits, question.text[place : place + 1]))
        return TokenScores.joined(parts)

    def probe(self) -> list[Blanks]:
        """Random texts of many lengths, each with blanks at its start, in its middle and at its end."""
        random, texts = np.random.default_rng(0), []
        for tokens in np.unique(np.geomspace(1, min(self.window, 128), 12).astype(int)):
            text = random.integers(0, self.vocabulary, tokens, dtype=np.int32)
            places = np.unique([0, tokens // 2, tokens - 1]).astype(np.int32)
            texts.append(Blanks(text, places, places + 1, int(self.tokenizer.mask_id or 0)))
        return texts


@torch.inference_mode()
def check(model: PaddedModel) -> SelfCheck:
    """The padded path compared with one text at a time on random texts: taken where it is right, else ``plain``.

    The noise of a 16-bit model is its distance from a float32 copy, where one fits in memory.  Raises ModelError for a
    model that answers with NaN or infinity.
    """
    questions = model.probe()
    truth = [running_sums(model.plain_scores(question).logprobs) for question in questions]
    if not np.isfinite(np.concatenate(truth)).all():
        raise ModelError(
            f"{model.name} answers random tokens with NaN or infinity: its weights are damaged or too large for "
            f"{model.dtype}; try float32, or download them again"
        )
    padded: Sums = [np.full(len(sums), np.nan) for sums in truth]
    for index, scores in model.scores(questions, padded=True):
        padded[index] = running_sums(scores.logprobs)
    difference, allowed = (
        largest_difference(padded, truth),
        _EXACT if model.model.dtype.itemsize >= 4 else _NARROW,
    )
    exact: Sums | None = None  # of a float32 copy of a 16-bit model
    if (copied := float32_copy(model.model)) is not None:
        before, model.model = model.model, copied
        try:
            exact = [running_sums(model.plain_scores(question).logprobs) for question in questions]
        finally:
            model.model = before
    floor = difference if exact is None else largest_difference(exact, truth)
    noise = max(noise_of(padded, truth), 0.0 if exact is None else noise_of(exact, truth))
    wrong = (
        f"differs by {difference:.2g} nats where {allowed:.2g} are allowed"
        if difference > allowed
        else None
    )
    depth = max(each.tokens for question in questions for each in model.passes(0, question))
    limits = floor, allowed, noise, depth
    trial = Trial("padded", difference, wrong)
    if wrong is None:
        return SelfCheck("padded", difference, *limits, (trial,), "padded batches")
    return SelfCheck(
        "plain", 0.0, *limits, (trial, Trial("plain", 0.0, None)), "one text at a time"
    )


@dataclass(frozen=True, slots=True)
class _Pass:
    """A row of a batch: ``part`` of what question ``index`` needs, with its input tokens, and those with logits."""

    index: int
    part: int
    tokens: int
    width: int


def _row(question: Blanks, part: int) -> Any:
    row = question.text.copy()
    row[question.places[part] : question.ends[part]] = question.mask
    return row


def _conversion_error(error: Exception) -> str | None:
    """Why weights could not be brought into the form the model has, which transformers says only in a log."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        reasons = getattr(frame.f_locals.get("loading_info"), "conversion_errors", None)
        if reasons:
            name, reason = next(iter(reasons.items()))
            last = [line.strip() for line in str(reason).splitlines() if line.strip()][-1]
            return f"its weights can't be merged into {name}: {last}; fetch the folder again"
    return None
