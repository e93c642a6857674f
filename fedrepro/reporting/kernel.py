"""Start kernels of notebooks, and leave none behind: they end with the process that started them, whatever ends it.

`python -m fedrepro.reporting.kernel -f FILE` is such a kernel. ipykernel, too, looks whether the process above is still
there, but not while a cell holds the interpreter's lock, nor if that process has ended before the kernel is ready.

In a process that was forked from a warm one, which has imported what notebooks need and read the store, the kernel is
forked as well: it saves the seconds that this takes. Elsewhere, and where there is a GPU (see `processes`), it is a new
interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from fedrepro import paths
from fedrepro.reporting import trace
from fedrepro.reporting.widgets import HEADLESS
from fedrepro.runs import derived, executors, index, lines, provenance, store, verification

# Slow modules that notebooks import, and those that run notebooks. They start no thread, but perhaps a GPU.
HEAVY = (
    "torch", "torch_geometric.data", "torch_geometric.utils", "pandas", "matplotlib.pyplot", "seaborn", "scipy.stats",
    "sklearn.metrics", "sklearn.cluster", "networkx", "ipywidgets", "ipykernel.kernelapp",
    "ipykernel.pylab.backend_inline", "matplotlib_inline.backend_inline", "papermill", "nbconvert",
    "pandas.io.formats.style", "IPython.core.completer", "IPython.core.debugger", "IPython.core.magics.execution",
    "fedrepro.engine.training", "fedrepro.reporting.answer", "fedrepro.reporting.figures", "fedrepro.reporting.outcome",
)  # fmt: skip
LOOK_SECONDS = 0.02  # between two looks whether a process has ended
# A kernel that is told to end writes its trace first; on a busy machine Jupyter's 5 seconds are too few for that.
END_SECONDS = 60.0
# Kernel managers, and files and folders, that this process has begun and must not leave behind.
_started: list[Any] = []
_unfinished: set[Path] = set()
warm = False  # whether this process, or the one it was forked from, has imported `HEAVY`


def warm_up() -> None:
    """Import what notebooks need, read the store and draw a first figure, in a process from which others are forked.

    An import that fails here fails again, with its message, in the notebook that needs it.
    """
    global warm
    trace.begin()
    gc.disable()  # nothing of what follows is to be freed, and looking for it takes a second
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for prepare in (_first_page, _first_figure, _fingerprints, _derived):
        with contextlib.suppress(Exception):
            prepare()
    # A process forked from this one must not free what libraries free at their end.
    for each in getattr(weakref.finalize, "_registry", ()):
        each.atexit = False
    with contextlib.suppress(ImportError, AttributeError):  # it imports a library, to say that nothing was compiled
        atexit.unregister(importlib.import_module("torch._dynamo.utils").dump_compile_times)
    gc.freeze()  # the collector of a forked process need not look through what is here, and its pages stay shared
    gc.enable()
    gc.set_threshold(20_000, 20, 50)  # frames and figures make millions of objects, and few circles of them
    warm = True


def _first_page() -> None:
    """Render a page, since the first one compiles templates and the patterns of Python and HTML."""
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

    from fedrepro.reporting.rendering import exporter

    table = new_output("display_data", {"text/html": "<table><td>1&amp;2</td></table>"})  # type: ignore[no-untyped-call]
    cells = [new_markdown_cell("# A *b* `c` $d$"), new_code_cell("import math  # one\nf'{1.0:g}'", outputs=[table])]  # type: ignore[no-untyped-call]
    exporter().from_notebook_node(new_notebook(cells=cells))  # type: ignore[no-untyped-call]


def _first_figure() -> None:
    """Draw a figure, since the first one looks for fonts and makes the grammar of formulas."""
    import matplotlib.pyplot as plt

    from fedrepro.reporting import files
    from fedrepro.reporting.style import style

    with style():
        figure, ax = plt.subplots()
        ax.plot([1, 1000], [1e-3, 1e9], label="$10^2$ and 0")
        ax.set(xscale="log", yscale="log", title="A", xlabel="b")
        ax.legend()
        plt.close(figure)
    files.drawn(figure)


def _fingerprints() -> None:
    """Hash the code behind all stored results, where no hashes are kept, since all sources are read for the first."""
    for cell in {lines.cell_of(record) for record in index.opened()}:
        provenance.current(*cell)


def _derived() -> None:
    """Read the store, and work out what most notebooks ask of all its records."""
    derived.means(store.opened())
    verification.stale(store.opened(), [])
    derived.findings(index.opened())


def processes() -> dict[str, Any]:
    """Return how a pool starts processes that run notebooks: each forked from a warm one, where that is safe.

    It is not where there is a GPU. The import of torch_geometric asks a torch that is built for CUDA how it was built,
    which starts the driver, and a process forked after that cannot use the GPU ("CUDA error: initialization error").
    """
    if sys.platform != "linux" or executors.has_driver():
        return {"mp_context": multiprocessing.get_context("spawn")}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedrepro.reporting.warm"])
    resource_tracker.ensure_running()  # first: it unblocks SIGINT at its end
    # A blocked signal stays so in the new process, and waits there until `warm` has chosen a silent end.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return {"mp_context": context, "max_tasks_per_child": 1}


def stop_warming() -> None:
    """End the process from which others are forked, which while it is warming does not see that nobody waits for it."""
    server: Any = forkserver._forkserver
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()  # so that a later pool starts a new one


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

    ready = Forked() if warm else None  # now: later this process has threads and sockets
    with scratch("fedrepro-") as folder:
        path = str(Path(folder) / "kernel")  # the files are path-1, path-2, ...
        files = os.name == "posix" and len(os.fsencode(f"{path}-99")) <= zmq.IPC_PATH_MAX_LEN

        class ThisInterpreter(AsyncKernelManager):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                self.shutdown_wait_time = END_SECONDS
                _started.append(self)
                if files:
                    self.transport, self.ip = "ipc", path

            async def _async_interrupt_kernel(self) -> None:
                """Do nothing: only a shutdown interrupts, and a kernel at rest logs that as an error."""

            async def _async_finish_shutdown(self, *args: Any, **kwargs: Any) -> None:
                await super()._async_finish_shutdown(*args, **{"pollinterval": LOOK_SECONDS, **kwargs})

            async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
                if ready is None:
                    await super()._async_launch_kernel(kernel_cmd, **kw)
                    return
                at = kernel_cmd.index(__name__) + 1
                ready.start(kernel_cmd[at:], kw["env"], kw.get("cwd") or os.getcwd())
                local: Any = self.provisioner
                local.process, local.pid, local.pgid = ready, ready.pid, ready.pid
                self._reconcile_connection_info(local.connection_info)

            @property
            def kernel_spec(self) -> KernelSpec:
                given = get_kernel_dict()
                argv = [__name__ if part == "ipykernel_launcher" else part for part in given["argv"]]
                # Said, since a forked kernel has matplotlib already and does not set it up when a cell imports it.
                return KernelSpec(**given | {"argv": [*argv, "--IPKernelApp.matplotlib=inline"]})

        try:
            yield ThisInterpreter
        finally:
            for started in [each for each in _started if isinstance(each, ThisInterpreter)]:
                _kill(started)
                _started.remove(started)


@contextlib.contextmanager
def environment(profile: str, jobs: int, traced: Path | None = None) -> Iterator[None]:
    """Set what the kernel inherits; `smoke` sees an empty store, raw graphs only in `data/raw`, and no network."""
    changes = {
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        trace.FILE: str(traced or ""),
        HEADLESS: "1",
    }
    if jobs > 1 and not os.environ.get("FEDREPRO_WORKERS"):
        # There are about two processes a core at most, so that the last notebook is not left with one core.
        changes["FEDREPRO_WORKERS"] = str(math.ceil(2 * executors.cores() / jobs))
    with scratch("fedrepro-smoke-") as empty:
        if profile == "smoke":
            nowhere = "http://127.0.0.1:9"
            changes |= {
                "FEDREPRO_STORE": str(Path(empty) / "results"),
                "FEDREPRO_FIGURES": str(paths.smoke() / "figures"),
                "FEDREPRO_DATA": str(Path(empty) / "data"),
                "http_proxy": nowhere,
                "https_proxy": nowhere,
                "no_proxy": "127.0.0.1,localhost",
            }
        before = {name: os.environ.get(name) for name in changes}
        os.environ.update(changes)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


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


class Forked:
    """A kernel forked from this process that waits for its connection file, as `subprocess.Popen` shows a process."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        reader, self._writer = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._writer)
            _begin_forked(reader)
        os.close(reader)
        self.returncode: int | None = None

    def start(self, arguments: list[str], variables: dict[str, str], folder: str) -> None:
        """Let the kernel begin, with the arguments, the environment and the folder of a new process."""
        variables = variables | {"JPY_PARENT_PID": str(os.getpid())}
        with os.fdopen(self._writer, "w", encoding="utf-8") as pipe:
            json.dump([arguments, variables, str(folder)], pipe)

    def poll(self) -> int | None:
        return self.wait(os.WNOHANG)

    def wait(self, options: int = 0) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _begin_forked(reader: int) -> None:
    """Wait in a forked process for what `Forked.start` writes, be that kernel, and end."""
    os.setsid()
    _started.clear()
    _unfinished.clear()
    # One's own: that of the processes above would tell at their end what a kernel that was killed has left.
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL)
    status = 1
    try:
        with os.fdopen(reader, encoding="utf-8") as pipe:
            text = pipe.read()  # nothing, if the process above has ended
        if text:
            arguments, variables, folder = json.loads(text)
            os.environ.clear()
            os.environ.update(variables)
            os.chdir(folder)
            sys.argv = [__name__, *arguments]
            status = main()
            atexit._run_exitfuncs()
    finally:
        os._exit(status)


def main() -> int:
    """Be a kernel until a client ends it, or until the process above has ended; return the exit status."""
    parent = int(os.environ.get("JPY_PARENT_PID", "0"))
    if os.name == "posix" and parent:
        # A process looks after the kernel: its threads may wait long for a cell that holds the interpreter's lock.
        os.environ["JPY_PARENT_PID"] = str(os.getpid())
        process = os.fork()
        if process:
            return _watch(process, parent)
        # ipykernel took its default from the environment when it was imported, before the fork.
        sys.argv.append(f"--IPKernelApp.parent_handle={os.environ['JPY_PARENT_PID']}")
    from ipykernel.kernelapp import launch_new_instance

    with trace.kept(os.environ.get(trace.FILE, "")):
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
