"""A GPU that is the CPU in truth, for a command and all its processes.

With this folder first in PYTHONPATH every Python finds this file when it starts, and torch, once it
is imported, sees one GPU. What is sent there stays where it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any


class _Loader(importlib.abc.Loader):
    """Loads torch as it is, and then has it see a GPU."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.own.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.own.exec_module(module)
        _pose(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _pose(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        is_gpu = isinstance(value, str) and value.startswith("cuda")
        is_gpu |= isinstance(value, torch.device) and value.type == "cuda"
        return torch.device("cpu") if is_gpu else value

    class OnCpu(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.device:
                return function(*args, **(kwargs or {}))  # its name may be asked for
            named = {name: here(value) for name, value in (kwargs or {}).items()}
            return function(*map(here, args), **named)

    torch.version.cuda = "12.6"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda.get_device_name = lambda device=None: "a GPU that poses"
    OnCpu().__enter__()  # for as long as the process lives


sys.meta_path.insert(0, _Finder())
