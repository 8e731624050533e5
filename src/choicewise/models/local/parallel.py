"""Let several processes compute one model together, each a part of every layer.

``torchrun`` starts them.  The tensor parallelism of transformers splits the weights by the model's
plan.  Rank 0 does everything that it does alone; before it asks its model anything it tells the
others, which ask theirs the same and drop the answers.  All ranks thus run the same code on the
same questions, and what they decide by (logits) is whole and the same on each.  Ranks that part
would give nonsense without an error, or wait for each other for ever, so before every forward pass
they compare its tokens, and after every question whether it failed.  A rank that can't go on ends
its process, and ``torchrun`` ends the others.
"""

from __future__ import annotations

import os
import sys
import traceback
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from choicewise.errors import ChoicewiseError, ModelError
from choicewise.models.local.devices import is_follower, ranks
from choicewise.questions import Ids

if TYPE_CHECKING:
    import torch

_IDLE = timedelta(days=365)  # that other ranks wait for rank 0 to ask something
_STUCK = timedelta(minutes=30)  # that a part of a forward pass waits for another rank
_HEADS = ("num_attention_heads", "num_key_value_heads")

LESS_MEMORY = "use a smaller model, a narrower dtype, or a device with more memory"
"""What to do if memory runs out whatever the size of a pack."""

Call = tuple[str, int, Any]
"""A task (``load``, or a method), the number of the model, and the argument."""


class Ranks:
    """This process among the others; joining waits until all are there."""

    def __init__(self) -> None:
        import torch
        from torch import distributed

        self.rank = int(os.environ["RANK"])
        self._models = 0
        self._dropped: list[int] = []
        self._checksum: int | None = None
        device = None
        backend = "gloo"
        if torch.cuda.is_available():
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            backend = "nccl"
            torch.cuda.set_device(device)
        distributed.init_process_group(backend, device_id=device, timeout=_STUCK)
        # Ranks talk on the host, whatever a GPU does.
        self._control = distributed.new_group(backend="gloo", timeout=_IDLE)

    def announce(self, call: Call | None) -> None:
        """Tell the other ranks, if this is rank 0, what is done next; None ends them."""
        if self.rank == 0:
            dropped = self._dropped.copy()
            del self._dropped[: len(dropped)]
            with _or_end("another rank stopped"):
                self._broadcast([call, dropped])

    def receive(self) -> tuple[Call | None, list[int]]:
        """Return what rank 0 announces next, and the numbers of models that it has dropped."""
        with _or_end("rank 0 stopped"):
            call, dropped = self._broadcast([None, None])
        return call, dropped

    def agree(self, value: int) -> bool:
        """Check that all ranks have the same ``value``; every rank has to call this."""
        import torch
        from torch import distributed

        extremes = torch.tensor([value, -value], dtype=torch.int64)
        with _or_end("another rank stopped"):
            distributed.all_reduce(extremes, distributed.ReduceOp.MAX, group=self._control)
        return int(extremes[0]) == -int(extremes[1])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do the same on all ranks.

        A ChoicewiseError of all is raised on all; what fails on one alone ends them.
        """
        try:
            yield
        except ChoicewiseError as error:
            if not self.agree(0):
                give_up(f"only this rank failed: {error}")
            raise
        except Exception:
            # Nobody knows whether the others have the same defect.
            traceback.print_exc()
            give_up("it failed (see above); everything written is kept")
        if not self.agree(1):
            give_up("another rank failed (see above)")

    def number(self, owner: object) -> int:
        """Return a number for the model of ``owner``, which is dropped with it."""
        self._models += 1
        weakref.finalize(owner, self._dropped.append, self._models)
        return self._models

    def note(self, tokens: Ids) -> None:
        """Take the checksum of the next pass from its ``tokens``, which are still on the host."""
        self._checksum = zlib.crc32(tokens.tobytes(), len(tokens))

    def watch(self, network: torch.nn.Module) -> None:
        """Compare the tokens of every pass through ``network`` on all ranks.

        The process ends if memory runs out in a pass.
        """
        body: Any = network.base_model
        forward = body.forward

        def compared(*args: Any, **kwargs: Any) -> Any:
            ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
            checksum = self._checksum
            self._checksum = None
            if checksum is None:
                # Few passes, of the plain reference, wait for the device.
                checksum = zlib.crc32(ids.cpu().numpy().tobytes(), ids.shape[-1])
            if not self.agree(checksum):
                give_up("the ranks got different tokens; run the same command again to resume")
            try:
                return forward(*args, **kwargs)
            except (RuntimeError, MemoryError) as error:
                refuse_memory(error)
                raise

        # The head is computed with another forward in place of this one, and needs no comparison.
        body.forward = compared

    def _broadcast(self, content: list[Any]) -> list[Any]:
        from torch import distributed

        distributed.broadcast_object_list(content, src=0, group=self._control)
        return content


@cache
def joined() -> Ranks:
    """Join the other processes, at the first call."""
    return Ranks()


def same_on_all_ranks(tokens: Ids) -> Ids:
    """Return the ``tokens`` of the next pass, which all ranks compare before they compute it.

    They do so while the tokens are on the host, so that no pass waits for the device.
    """
    if ranks() > 1:
        joined().note(tokens)
    return tokens


def release() -> None:
    """Let the other ranks go, if this is rank 0, at the end of its process."""
    if ranks() > 1 and not is_follower():
        joined().announce(None)
        # None is left with half a message.
        joined().agree(0)


def refuse(config: Mapping[str, Any], folder: Path, objection: str | None) -> None:
    """Raise ModelError if the ranks can't share the model in ``folder``, before it is loaded.

    ``objection``: what keeps them from it apart from its configuration, in words, or None.
    """
    from transformers import CONFIG_MAPPING

    size = ranks()
    alone = "run without torchrun, which spreads its layers over the GPUs"
    if objection is not None:
        raise ModelError(f"{folder} can't be shared by {size} processes: {objection}; {alone}")
    kind = config.get("model_type")
    if kind not in CONFIG_MAPPING or not getattr(CONFIG_MAPPING[kind], "base_model_tp_plan", None):
        raise ModelError(
            f"{folder} can't be shared by {size} processes: transformers has no tensor-parallel "
            "plan (tp_plan) for "
            f"{kind!r} models; {alone}"
        )
    text = {**config, **(config.get("text_config") or {})}
    for name in _HEADS:
        heads = text.get(name)
        if not isinstance(heads, int) or heads % size == 0:
            continue
        fitting = [str(count) for count in range(2, size) if _divides_heads(count, text)]
        advice = ""
        if fitting:
            advice = f"start {' or '.join(fitting)} processes (torchrun --nproc-per-node), or "
        raise ModelError(
            f"{folder} has {heads} {name.removeprefix('num_').replace('_', ' ')}, which {size} "
            "processes can't "
            f"share evenly; {advice}{alone}"
        )


def _divides_heads(count: int, config: Mapping[str, Any]) -> bool:
    return all(config.get(name, 0) % count == 0 for name in _HEADS)


def placement() -> dict[str, Any]:
    """Return the arguments of ``from_pretrained`` that split the weights."""
    from transformers.distributed import DistributedConfig

    return {"distributed_config": DistributedConfig(tp_size=ranks(), tp_plan="auto")}


def refuse_memory(error: Exception) -> None:
    """End this process if memory ran out: the other ranks can't take smaller packs with it."""
    if ranks() > 1 and _is_out_of_memory(error):
        give_up(
            f"out of memory ({str(error).splitlines()[0]}); compute fewer tokens at once "
            "(batch_tokens)"
        )


def out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, on a device or on the host; among several ranks this one then
    ends.
    """
    refuse_memory(error)
    return _is_out_of_memory(error)


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # torch has no class for what runs out on the host.
    return "DefaultCPUAllocator" in str(error)


def give_up(reason: str) -> NoReturn:
    """End this process, which ``torchrun`` follows with all others: nothing waits for a rank that
    is gone.
    """
    sys.stderr.write(f"error: rank {os.environ['RANK']} of {ranks()}: {reason}\n")
    sys.stderr.flush()
    os._exit(ModelError.exit_code)


@contextmanager
def _or_end(reason: str) -> Iterator[None]:
    """End this process if the others can't be reached."""
    try:
        yield
    except RuntimeError as error:
        give_up(f"{reason}: {str(error).splitlines()[0]}; run the same command again to resume")
