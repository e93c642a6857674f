"""Show a plain function of numbers with sliders where somebody can move them, and at its defaults everywhere else."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fedrepro.errors import require

HEADLESS = "FEDREPRO_HEADLESS"  # set for kernels that run a notebook from beginning to end with nobody before them

Range = tuple[float, float, float] | Sequence[Any]


def explore(function: Callable[..., Any], **ranges: Range) -> None:
    """Show what `function` returns at its defaults, and in Jupyter sliders below it that show it again.

    The picture or table at the defaults is an ordinary output, which stays in a saved notebook and on its page.
    A slider replaces it in place.

    Args:
        function: a plain function whose arguments all have defaults.
        ranges: for each argument that may be moved `(lowest, highest, step)`, or a list of choices.

    Raises:
        ArgumentError: an argument is unknown or has no default, or its default is not allowed.
    """
    from IPython.display import display

    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    for name, allowed in ranges.items():
        known = name in defaults and defaults[name] is not inspect.Parameter.empty
        require(known, "ranges", f"for arguments of {function.__name__} that have a default", name)
        inside = allowed[0] <= defaults[name] <= allowed[1] if isinstance(allowed, tuple) else defaults[name] in allowed
        require(inside, f"the default of {name}", f"within {allowed!r}", defaults[name])
    shown = display(function(), display_id=True)  # type: ignore[no-untyped-call]
    if not live():
        return
    import ipywidgets

    movers = {name: _mover(name, defaults[name], allowed) for name, allowed in ranges.items()}

    def moved(_: Any) -> None:
        shown.update(function(**{name: mover.value for name, mover in movers.items()}))

    for mover in movers.values():
        mover.observe(moved, "value")
    display(ipywidgets.VBox(list(movers.values())))  # type: ignore[no-untyped-call]


def live() -> bool:
    """Return whether a notebook is open before somebody: in a kernel, and not run from beginning to end."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None and not os.environ.get(HEADLESS)


def _mover(name: str, value: Any, allowed: Range) -> Any:
    import ipywidgets

    words = {"description": name.replace("_", " "), "style": {"description_width": "initial"}, "value": value}
    if not isinstance(allowed, tuple):
        return ipywidgets.Dropdown(options=list(allowed), **words)
    whole = all(isinstance(one, int) for one in (*allowed, value))
    least, most, step = allowed
    kind = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return kind(min=least, max=most, step=step, continuous_update=False, **words)
