"""Devices that a machine without GPUs pretends to have: ``cpu:1``, ``cpu:2``, ... A tensor on one holds numbers of the
CPU and says that it lies elsewhere. Every operation that torch dispatches, of our code or of anybody's, raises
:class:`DifferentDevices` where tensors of several devices meet; as with CUDA, only a copy from one to another, tensors
of one number without a shape, and what stands in ``[]`` on the CPU are free."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten

HOST = torch.device("cpu")


class DifferentDevices(RuntimeError):
    """Tensors of several devices in one operation."""


class Placed(Tensor):
    """A tensor with the numbers of ``inner`` that lies on ``place``."""

    inner: Tensor
    place: torch.device

    @staticmethod
    def __new__(cls, inner: Tensor, place: torch.device) -> Placed:
        with torch.inference_mode(False):  # a view of another wrapper counts that one's changes
            lies = {
                "strides": inner.stride(),
                "storage_offset": inner.storage_offset(),
                "layout": inner.layout,
            }
            seen = {"dtype": inner.dtype, "device": HOST, "dispatch_device": True}
            made: Placed = torch.Tensor._make_wrapper_subclass(cls, inner.size(), **lies, **seen)
        made.inner, made.place = inner, place
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(op, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Placed:
        made = Placed(self.inner.clone(), self.place)
        others = {
            name: value for name, value in self.__dict__.items() if name not in ("inner", "place")
        }
        made.__dict__.update({name: copy.deepcopy(value, memo) for name, value in others.items()})
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.inner!r} on {self.place}"


def place_of(tensor: Tensor) -> torch.device:
    return tensor.place if isinstance(tensor, Placed) else tensor.device


def compute(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of ``op`` on what the tensors hold, placed where the tensors lie or where it is asked for."""
    if op is torch.ops.prim.device.default:
        return args[0].place
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if op is aten.index.Tensor:  # what lies on the CPU is copied to where it is needed
        args = (args[0], [_beside(each, args[0]) for each in args[1]])
        tensors = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
    places = {place_of(tensor) for tensor in tensors if tensor.dim() or isinstance(tensor, Placed)}
    if len(places) > 1 and op is aten.copy_.default:
        places = {place_of(args[0])}
    elif len(places) > 1:
        scalars = {place_of(tensor) for tensor in tensors if not tensor.dim()}
        places = {place_of(tensor) for tensor in tensors if tensor.dim()} or scalars
        if len(places) > 1 or scalars - places - {HOST}:
            raise DifferentDevices(
                f"{op} of tensors on {', '.join(sorted(map(str, places | scalars)))}"
            )
    place = kwargs.get("device") or next(iter(places), HOST)
    inner = {id(tensor.inner): tensor for tensor in tensors if isinstance(tensor, Placed)}
    own = {id(tensor): tensor for tensor in tensors}
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": HOST}
    result = op(*tree_map(_inner, args), **tree_map(_inner, kwargs))

    def placed(each: Any) -> Any:
        if not isinstance(each, Tensor) or id(each) in own:
            return each
        if id(each) in inner:
            return inner[id(each)]
        return each if place == HOST else Placed(each, place)

    return tree_map(placed, result)


def _beside(index: Tensor | None, tensor: Tensor) -> Tensor | None:
    is_free = index is not None and not isinstance(index, Placed) and isinstance(tensor, Placed)
    return Placed(index, tensor.place) if is_free else index


def _inner(each: Any) -> Any:
    return each.inner if isinstance(each, Placed) else each


class _Operations(TorchDispatchMode):
    """What makes tensors on a pretended device out of others."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op.overloadpacket is aten.to:  # in inference mode it comes whole: a copy, or nothing
            with self:
                return op.decompose(*args, **kwargs or {})
        return compute(op, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """What reads memory, or makes tensors of Python's numbers, without an operation that is dispatched."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            place = torch.device(kwargs["device"])
            return function(*args, **{**kwargs, "device": HOST}).to(place)
        if function in (Tensor.tolist, Tensor.data_ptr) and isinstance(args[0], Placed):
            return function(args[0].inner)
        if function is Tensor.numpy and isinstance(args[0], Placed):
            raise DifferentDevices(f"a tensor on {args[0].place} becomes an array of the host")
        return function(*args, **kwargs)


@contextmanager
def pretending() -> Iterator[None]:
    """Meanwhile this thread has the devices ``cpu:1``, ``cpu:2``, ..."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(
        True
    )  # what moves is another tensor, not new memory
    try:
        with _Operations(), _Functions():
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
