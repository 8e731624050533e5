"""A process of a job that trains: asks a bundle of models that are divided in every way, and notes what came of it.

python -m torch.distributed.run --nproc-per-node 2 tests/helpers/ranks.py BUNDLE OUT
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from choicewise import InLoop
from choicewise.errors import ChoicewiseError

VOCABULARY = 513  # which two ranks can't halve


class Net(nn.Module):
    """A token's logits depend on all before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.body = nn.Embedding(VOCABULARY, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(self.embed(tokens).cumsum(dim=1))))


def sharded(model: Net) -> nn.Module:
    """Its weights are gathered in every forward pass."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.body, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def divided(model: Net) -> nn.Module:
    """Every rank has logits of its own tokens."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    plan = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    return parallelize_module(model, mesh, {"head": plan})


WAYS: dict[str, tuple[Callable[[Net], nn.Module], dict[str, Any]]] = {
    "replicas": (lambda model: model, {}),
    "no batches": (lambda model: model, {"batch_tokens": 1}),
    "DDP": (DistributedDataParallel, {}),
    "FSDP2": (sharded, {"batch_tokens": 200}),
    "TP": (divided, {"group": False}),
}


def step(model: nn.Module) -> float:
    """Of the optimizer; the loss before it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = model(torch.arange(24).reshape(2, 12)).logsumexp(-1).mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def refused(act: Callable[[], object]) -> str:
    """The error, in words."""
    try:
        act()
    except ChoicewiseError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(bundle: str, out: Path) -> None:
    """Write what this rank got."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    noted: dict[str, Any] = {}
    for name, (wrap, how) in WAYS.items():
        model = wrap(Net())
        asks = InLoop(bundle, out / name, **how)
        noted[name] = {"metrics": asks(model, 1), "modes": model.training}
        if name in ("DDP", "FSDP2"):
            losses = [step(model)]
            asks(model, 2)
            with (
                torch.no_grad()
            ):  # as an optimizer does, which no gradient of a forward pass told anything
                for weight in model.parameters():
                    weight.mul_(0.5)
            noted[name]["losses"] = [*losses, step(model)]
    noted["step twice"] = refused(
        lambda: InLoop(bundle, out / "TP", group=False)(divided(Net()), 1)
    )
    noted["no group"] = refused(lambda: InLoop(bundle, out / "none")(divided(Net()), 1))
    noted["steps"] = refused(lambda: InLoop(bundle, out / "none")(Net(), rank))
    broken = Net()
    with torch.no_grad():
        broken.head.bias.fill_(float("nan"))
    noted["NaN"] = refused(lambda: InLoop(bundle, out / "none")(broken, 1))
    (out / f"rank{rank}.json").write_text(json.dumps(noted))
    dist.barrier()  # else torch 2.13 aborts now and then, as one rank ends while the other still closes its group
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
