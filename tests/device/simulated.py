"""A simulated accelerator: true `cuda:0` tensors of a CPU build of torch, in the host's memory.

`device.cpp` beside this file registers with torch a device guard, hooks, an allocator and one boxed fallback for the
dispatch key CUDA. The fallback checks what CUDA checks, calls the CPU's kernel on the same memory, and tells a listener
the operation's name. torch asks once, when it is imported, whether there is CUDA. So the device is for processes of its
own, which find it by a `sitecustomize` on their path:

    subprocess.run([sys.executable, "-m", "pytest", "tests/device/on_device.py"], env=simulated.environment())
    PYTHONPATH=tests python -m device.simulated make smoke DEVICE=cuda      # notebooks, workers, all

In such a process:

    with simulated.Watch() as watch:       # what a piece of work asks of the device
        train(method, fed, 1)
    watch.ops                              # a Counter of operations
    simulated.limit(2**26)                 # more memory is now torch.cuda.OutOfMemoryError
    simulated.noise(6e-8)                  # products and sums rounded otherwise, as on a GPU

It refuses two devices in one operation (tensors of dimension 0 excepted where CUDA takes them), generators of the CPU,
NumPy, integer matrix products, gradients whose strides fused Adam does not take, and sparse layouts. An index out of
range is a device assert, after which every operation of the process fails. So does every operation of a process that
was forked from one that had imported torch_geometric. Kernels, speed and streams are not tested.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME = "simulated CUDA (host memory)"
MEMORY = 8 << 30
NOT_TRIED = "no method is tried on an accelerator: the simulated one"


@cache
def _torch() -> tuple[Path, str]:
    """Return the folder of torch and its version, without importing it."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    lines = (folder / "version.py").read_text().splitlines()
    (version,) = (line.split("'")[1] for line in lines if line.startswith("__version__ ="))
    return folder, version


def obstacle() -> str:
    """Return why the device cannot be built on this machine, or an empty text."""
    pinned = next(
        line.partition("==")[2] for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:7] == "torch=="
    )
    version, _, build = _torch()[1].partition("+")
    if shutil.which("g++") is None:
        return f"{NOT_TRIED} needs g++"
    if version != pinned:
        return f"{NOT_TRIED} is written for torch {pinned}, not {version}"
    if build != "cpu":
        return f"{NOT_TRIED} needs a CPU build of torch, not {build or 'one without a name'}"
    return ""


def build() -> Path:
    """Return the compiled library, which takes 10 seconds once for each source and torch.

    Raises:
        subprocess.CalledProcessError: it does not compile with this torch; `stderr` says why.
    """
    torch, version = _torch()
    source = HERE / "device.cpp"
    name = hashlib.sha256(source.read_bytes() + version.encode() + str(torch).encode()).hexdigest()[:16]
    library = ROOT / "build" / "device" / f"{name}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}.so")
        include = torch / "include"
        subprocess.run(
            ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(partial), f"-I{include}",
             f"-I{include}/torch/csrc/api/include", f"-L{torch}/lib", "-lc10", "-ltorch_cpu",
             f"-Wl,-rpath,{torch}/lib"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        partial.rename(library)
    return library


def environment() -> dict[str, str]:
    """Return the variables under which every Python process has the device as soon as it imports torch."""
    python = [str(HERE / "site"), str(HERE.parent), os.environ.get("PYTHONPATH")]
    programs = [str(HERE / "site"), os.environ.get("PATH")]  # `nvidia-smi`, as wherever there is a driver
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, python)), "PATH": os.pathsep.join(filter(None, programs))}
    return {**os.environ, **paths, "SIMULATED_DEVICE": str(build())}


# -- in a process that has the device ---------------------------------------------------------------------------------

_state = SimpleNamespace(library=None, heard=None)


def install() -> None:
    """Let `torch.cuda` answer for the device (done by `sitecustomize`)."""
    import torch

    lib = _state.library = ctypes.PyDLL(os.environ["SIMULATED_DEVICE"])
    lib.device_held.restype = lib.device_peak.restype = ctypes.c_int64
    lib.device_limit.argtypes, lib.device_noise.argtypes = [ctypes.c_int64], [ctypes.c_double]
    lib.device_hook.argtypes = [ctypes.c_void_p]
    lib.device_limit(MEMORY)
    properties = SimpleNamespace(total_memory=MEMORY, name=NAME, major=8, minor=0, multi_processor_count=1)
    answers: dict[str, Any] = {
        "is_available": lambda: True, "_lazy_init": lambda: None, "init": lambda: None, "is_initialized": lambda: False,
        "device_count": lambda: 1, "current_device": lambda: 0, "set_device": lambda d: None,
        "empty_cache": lambda: None, "get_device_name": lambda d=None: NAME,
        "get_device_properties": lambda d=None: properties, "get_device_capability": lambda d=None: (8, 0),
        "mem_get_info": lambda d=None: (MEMORY - lib.device_held(), MEMORY),
        "synchronize": lambda d=None: _state.heard and _state.heard(b"synchronize"),
        "memory_allocated": lambda d=None: lib.device_held(), "max_memory_allocated": lambda d=None: lib.device_peak(),
        "reset_peak_memory_stats": lambda d=None: lib.device_reset_peak(),
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)

    def forked() -> None:
        if "torch_geometric" in sys.modules:  # whose import makes a torch that is built for CUDA ask the driver
            lib.device_forked()

    os.register_at_fork(after_in_child=forked)


def limit(size: int = MEMORY) -> None:
    """Set the bytes that the device has; more is `torch.cuda.OutOfMemoryError`."""
    _state.library.device_limit(size)


def noise(by: float) -> None:
    """Set the relative error added to the results of products and sums, 0 for none."""
    _state.library.device_noise(by)


def forget_assert() -> None:
    """Make the device work again after a device assert, as no CUDA device does."""
    _state.library.device_assert(0)


class Watch:
    """Count the operations that the device is asked for, forward and backward: `ops`.

    `unordered` holds the functions of the package in which an operation of `ATOMIC` was asked for; in the backward pass
    of an operation of torch, which no function of the package calls, it is `backward`.
    """

    def __init__(self) -> None:
        self.ops: Counter[str] = Counter()
        self.unordered: set[str] = set()

    def _heard(self, name: bytes) -> None:
        self.ops[name.decode()] += 1
        if name.decode().partition(".")[0] in ATOMIC:
            self.unordered.add(_caller())

    def __enter__(self) -> Watch:
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self._heard)
        _state.heard = self._heard
        _state.library.device_hook(ctypes.cast(self._callback, ctypes.c_void_p))
        return self

    def __exit__(self, *_: object) -> None:
        _state.library.device_hook(None)
        _state.heard = None

    def count(self, names: tuple[str, ...]) -> int:
        """Return the number of operations among some names, of all overloads."""
        return sum(count for name, count in self.ops.items() if name.partition(".")[0] in names)


def _caller() -> str:
    """Return the innermost function of the package, or of a test, that is being called, as `module.function`."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("fedrepro.") or module.endswith("on_device"):
            return f"{module.removeprefix('fedrepro.').removeprefix('tests.device.')}.{frame.f_code.co_name}"
        frame = frame.f_back
    return "backward"


# Operations that make the host wait for a GPU.
WAITS = (
    "aten::_local_scalar_dense", "aten::nonzero", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
    "aten::masked_select", "aten::equal", "aten::bincount", "aten::repeat_interleave", "copy_ device to host",
    "copy_ host to device", "synchronize",
)  # fmt: skip
# Operations that sum floats in the order in which a GPU's threads happen to arrive: other last bits in every run.
ATOMIC = (
    "aten::index_add", "aten::index_add_", "aten::scatter_add", "aten::scatter_add_", "aten::put_",
    "aten::scatter_reduce", "aten::scatter_reduce_", "aten::index_reduce", "aten::index_reduce_", "aten::histc",
    "aten::_embedding_bag_backward", "aten::_embedding_bag_dense_backward",
)  # fmt: skip


@cache
def _table() -> dict[str, Any]:
    import torchgen
    import yaml

    table = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    return {entry["func"].split("(")[0]: entry for entry in yaml.safe_load(table.read_text())}


def without_kernel(names: set[str]) -> set[str]:
    """Return those operations for which torch has no CUDA kernel, by its own table."""

    def has(name: str) -> bool:
        entry = _table()[name]
        if "structured_delegate" in entry:
            return has(entry["structured_delegate"])
        keys = {key.strip() for group in entry.get("dispatch") or {} for key in group.split(",")}
        return not keys or "CUDA" in keys or "ufunc_inner_loop" in entry or any(k.startswith("Composite") for k in keys)

    return {n for n in (name.removeprefix("aten::") for name in names if name.startswith("aten::")) if not has(n)}


if __name__ == "__main__":
    sys.exit(subprocess.run(sys.argv[1:], env=environment()).returncode)
