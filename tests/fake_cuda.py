"""A CUDA device that is none: tensors of the CPU that say they are on `cuda:0` and refuse what CUDA refuses.

Refused are operations that mix devices (scalars excepted), generators of the CPU, and NumPy. So a program that forgets
to move a tensor fails here as on a GPU, on a machine that has none. Kernels, their speed and their rounding are not
tested by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda:0")
aten = torch.ops.aten
MOVES = (aten.copy_, aten._to_copy)
INDEXES = (aten.index, aten.index_put_, aten.index_put, aten._index_put_impl_)


class DeviceError(RuntimeError):
    """Tell of an operation that CUDA would refuse."""


class Cuda(Tensor):
    """A tensor "on the GPU"; `inner` holds its numbers."""

    inner: Tensor
    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Cuda:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        wrap: Callable[..., Cuda] = Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
        made = wrap(cls, inner.shape, **layout, dtype=inner.dtype, device="cpu")
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket
        every = [entry for entry in tree_flatten((args, kwargs or {}))[0] if isinstance(entry, Tensor)]
        if name in INDEXES:  # a GPU's tensor may be indexed by the CPU's, not the other way round
            every = [args[0], *(entry for entry in args[2:3] if isinstance(entry, Tensor) and entry.numel() != 1)]
        here = [entry for entry in every if not isinstance(entry, Cuda) and entry.dim() > 0]
        if here and name not in MOVES:
            raise DeviceError(f"{func}: a tensor of shape {tuple(here[0].shape)} is on the CPU")
        known: dict[int, Cuda] = {}

        def bare(entry: Any) -> Any:
            if not isinstance(entry, Cuda):
                return entry
            known[id(entry.inner)] = entry
            return entry.inner

        def wrapped(entry: Any) -> Any:
            return known.get(id(entry), Cuda(entry)) if isinstance(entry, Tensor) else entry

        out = func(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
        return tree_map(wrapped, out)


def _on_gpu(device: Any) -> bool:
    return device is not None and str(device).startswith("cuda")


class _Device(TorchFunctionMode):
    """Moves tensors to and from the device, and makes new ones there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        first = args[0] if args else None
        if isinstance(first, Cuda):
            if name in ("numpy", "__array__"):
                raise DeviceError("a tensor of the GPU cannot become an array")
            if name in ("cpu", "tolist", "one_hot"):  # the last reads its largest entry, as on a GPU
                moved = first.detach().inner.clone()
                found = moved if name == "cpu" else func(moved, *args[1:], **kwargs)
                return Cuda(found) if name == "one_hot" else found
        if func is torch.Tensor.to and isinstance(first, Tensor):
            return _moved(first, args[1:], kwargs)
        if func is torch.matmul and "out" in kwargs:
            return kwargs["out"].copy_(torch.matmul(*args))
        if not _on_gpu(kwargs.get("device")):
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise DeviceError(f"{name}: a generator of the CPU for a tensor of the GPU")
        made = func(*args, **{**kwargs, "device": "cpu"})
        return made if isinstance(made, Cuda) else Cuda(made.detach()).requires_grad_(made.requires_grad)


def _moved(tensor: Tensor, given: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    device, dtype = kwargs.get("device"), kwargs.get("dtype") or tensor.dtype
    for entry in given:
        if isinstance(entry, str | torch.device):
            device = entry
        elif isinstance(entry, torch.dtype):
            dtype = entry
        elif isinstance(entry, Tensor):
            device, dtype = entry.device, entry.dtype
    to_gpu = isinstance(tensor, Cuda) if device is None else _on_gpu(device)
    if to_gpu == isinstance(tensor, Cuda):
        return torch.Tensor.to(tensor, dtype)
    if to_gpu:
        return Cuda(tensor.detach().to(dtype).clone())
    return tensor.detach().inner.clone().to(dtype)  # type: ignore[attr-defined]


def _grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> Any:
    """`torch.autograd.grad`, which asks a tensor of the GPU for a stream."""
    ends, starts = ((one,) if isinstance(one, Tensor) else tuple(one) for one in (outputs, inputs))
    given = (None,) * len(ends) if grad_outputs is None else grad_outputs
    by = (given,) if isinstance(given, Tensor) else tuple(given)
    by = tuple(torch.ones_like(end) if one is None else one for end, one in zip(ends, by, strict=True))
    run: Callable[..., Any] = torch.autograd.graph._engine_run_backward
    return run(ends, by, bool(retain_graph), create_graph, starts, allow_unused, accumulate_grad=False)


@contextmanager
def device(monkeypatch: Any) -> Iterator[None]:
    """Within it `.to("cuda")` and `device="cuda"` give tensors of the device."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *given: (8 << 30, 8 << 30))
    monkeypatch.setattr(torch.autograd, "grad", _grad)
    with _Device():
        yield
