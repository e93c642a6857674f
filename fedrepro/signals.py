"""Signals that end a command."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, as of a job scheduler or a closed terminal, end a command as SIGINT does."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number))

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = threading.current_thread() is threading.main_thread()
    # One that is ignored stays so: nohup.
    before = {
        number: signal.signal(number, end) for number in known if ours and signal.getsignal(number) == signal.SIG_DFL
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
