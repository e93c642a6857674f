"""Start kernels of notebooks, and leave none behind: they end with the process that started them, whatever ends it.

`python -m fedrepro.reporting.kernel -f FILE` is such a kernel. ipykernel, too, looks whether the process above is still
there, but not while a cell holds the interpreter's lock, nor if that process has ended before the kernel is ready.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedrepro.runs import executors

LOOK_SECONDS = 0.1
# What this process has begun and must not leave: kernel managers, and files and folders.
_started: list[Any] = []
_unfinished: set[Path] = set()


@contextlib.contextmanager
def manager() -> Iterator[type]:
    """Return a kernel manager that starts this interpreter, whatever kernels are registered for the user.

    Client and kernel talk through socket files where the system has them and takes their paths. TCP ports are chosen
    before the kernel binds them, and another notebook's kernel, or a client that tries to connect too early, can take
    one in between: such a kernel never answers.
    """
    import zmq
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    with scratch("fedrepro-") as folder:
        path = str(Path(folder) / "kernel")  # the files are path-1, path-2, ...
        files = os.name == "posix" and len(os.fsencode(f"{path}-99")) <= zmq.IPC_PATH_MAX_LEN

        class ThisInterpreter(AsyncKernelManager):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                _started.append(self)
                if files:
                    self.transport, self.ip = "ipc", path

            @property
            def kernel_spec(self) -> KernelSpec:
                given = get_kernel_dict()
                argv = [__name__ if part == "ipykernel_launcher" else part for part in given["argv"]]
                return KernelSpec(**given | {"argv": argv})

        try:
            yield ThisInterpreter
        finally:
            for started in [each for each in _started if isinstance(each, ThisInterpreter)]:
                _kill(started)
                _started.remove(started)


@contextlib.contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Remove a file or folder at the end, also if this process is told to end."""
    _unfinished.add(path)
    try:
        yield path
    finally:
        _remove(path)
        _unfinished.discard(path)


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[str]:
    """Make a temporary folder, and remove it as `unfinished` does."""
    with unfinished(Path(tempfile.mkdtemp(prefix=prefix))) as folder:
        yield str(folder)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def remove_abandoned(output: Path) -> None:
    """Remove the partial copies of a notebook, `<name>.<process>.partial.ipynb`, of processes that were killed."""
    for path in output.parent.glob(f"{output.stem}.*.partial.ipynb"):
        number = re.fullmatch(r"(\d+)\.partial\.ipynb", path.name.removeprefix(f"{output.stem}."))
        try:
            if number:
                os.kill(int(number[1]), 0)  # raises if there is no such process
        except (ProcessLookupError, OverflowError):
            _remove(path)
        except OSError:
            pass  # it is another user's, or this system cannot tell


def end_when_told() -> None:
    """Make this process of a pool end at once, with its kernels, when it is told to or when the process above ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process above was interrupted, too, and ends this one
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda number, _: _end(128 + number))
    executors.end_with_parent(lambda: _end(1))


def _end(status: int) -> None:
    for started in _started:
        _kill(started)
    for path in list(_unfinished):
        _remove(path)
    os._exit(status)


def _kill(started: Any) -> None:
    """Kill what is left of a kernel and of the processes it started, its pools of workers among them."""
    with contextlib.suppress(OSError):
        if (group := getattr(started.provisioner, "pgid", None)) and group != os.getpgid(0):
            os.killpg(group, signal.SIGKILL)


def main() -> int:
    """Be a kernel until a client ends it, or until the process above has ended; return the exit status."""
    parent = int(os.environ.get("JPY_PARENT_PID", "0"))
    if os.name == "posix" and parent:
        # A process looks after the kernel: its threads may wait long for a cell that holds the interpreter's lock.
        os.environ["JPY_PARENT_PID"] = str(os.getpid())
        process = os.fork()
        if process:
            return _watch(process, parent)
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
    return 0


def _watch(process: int, parent: int) -> int:
    """Wait for the end of a kernel, and kill it with all it has started as soon as the process above has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is meant for the cell
    while os.getppid() == parent:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) % 256
        time.sleep(LOOK_SECONDS)
    if os.getpgid(0) == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(process, signal.SIGKILL)
    return 1


if __name__ == "__main__":
    sys.exit(main())
