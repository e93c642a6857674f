"""Warm a process by being imported: it then has what notebooks need, and those forked from it have it at once."""

import atexit
import os
import signal
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # a second thread of torch would be lost in a fork
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # see `notebook._begin`
sys.modules.setdefault("debugpy", None)  # type: ignore[arg-type]  # no client asks a headless kernel for its debugger

# An interrupt at the terminal also ends this process. Its own traceback would only disturb, so it ends without one.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which `kernel.processes` has blocked

from fedrepro.reporting import kernel  # noqa: E402

kernel.warm_up()


def _end(server: int = os.getpid()) -> None:
    if os.getpid() == server:
        os._exit(0)  # freeing what was imported takes seconds, and nothing is left to be done


atexit.register(_end)
