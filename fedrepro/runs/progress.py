"""Show how far a computation is: a bar in a terminal and in Jupyter, a line a minute elsewhere.

`unguarded` tells whether the script that runs could be taken for a worker's own work.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

SECONDS = 60.0  # between two lines where there is no terminal


def bar(total: int, shown: bool = True) -> Any:
    """Return a bar of tqdm over `total` runs, with the time left.

    In Jupyter it is a widget. In a log it is a line a minute, and nothing for what takes less. Under a notebook that is
    executed without anybody who looks, whose copy would keep it, nothing is shown.
    """
    from tqdm import tqdm

    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    options: dict[str, Any] = {"total": total, "unit": "run"}
    if not shown or os.environ.get("FEDREPRO_TRACE"):
        return tqdm(**options, disable=True)
    if hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty()):
        from tqdm.auto import tqdm as automatic  # a widget in Jupyter

        return automatic(**options, mininterval=0.5)

    class Lines(tqdm):  # type: ignore[misc]
        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            print(msg or str(self), file=sys.stderr, flush=True)

        def set_description_str(self, desc: str | None = None, refresh: bool = True) -> None:
            super().set_description_str(desc, refresh=False)  # it is said many times a second while one waits

    return Lines(**options, mininterval=SECONDS, maxinterval=SECONDS, delay=SECONDS, miniters=1, ncols=78)


def unguarded() -> str:
    """Return the path of the script that runs, if worker processes would run it a second time, else nothing.

    A spawned process imports the script. Its work would begin anew if it is not below `if __name__ == "__main__":`.
    A guard elsewhere in the script does not help. Only the line that called this package counts.
    """
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if not file or getattr(main, "__spec__", None) is not None or not str(file).endswith(".py"):
        return ""
    with suppress(OSError, SyntaxError, ValueError):
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        guards = [node for node in tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
        line = _line_of(main)
        guarded = [node for node in guards if not line or node.lineno <= line <= (node.end_lineno or line)]
        return "" if guarded else str(file)
    return ""


def _line_of(main: Any) -> int:
    """Return the line at which the script stands now; 0 where it is not on the stack, as in another thread."""
    for frame, line in traceback.walk_stack(sys._getframe()):
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(main):
            return line
    return 0
