"""Load the simulated accelerator before torch and let `torch.cuda` answer for it after, in every process."""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from typing import Any


class _Torch(importlib.abc.MetaPathFinder):
    """Find torch as Python does, with the device loaded just before."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        ctypes.CDLL(os.environ["SIMULATED_DEVICE"], ctypes.RTLD_GLOBAL)
        spec: Any = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            from device import simulated

            simulated.install()

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("SIMULATED_DEVICE"):
    sys.meta_path.insert(0, _Torch())
