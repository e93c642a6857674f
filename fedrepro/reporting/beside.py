"""Write the names of points next to them. Each name is nearest to its own point, or has a line to it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from fedrepro.reporting.legible import overlap, whole

NEARER = 1.0  # pixels by which a name is nearer to its own point than to any other
SIDES = [(4 if side == "left" else -4, up, side) for up in (3, -9, 10, -16, 17, -23) for side in ("left", "right")]
FAR = [
    (int(size * x), int(size * y), "left" if x > 0 else "right")
    for size in range(20, 200, 12)
    for y in (1, -1, 0, 0.5, -0.5, 2, -2)
    for x in (1, -1)
]
# Shifts from a point with the side of the text that stands there, and whether they are far from it.
PLACES = [(shift, far) for shifts, far in ((SIDES, False), (FAR, True)) for shift in shifts]


def name_points(ax: Axes, names: Sequence[str], x: Sequence[float], y: Sequence[float]) -> None:
    """Write a name next to each point, where it covers no other point and no other name. The axes have their limits.

    A name that would be nearer to another point than to its own is written farther off, with a thin line to its point.
    If every shift covers something, the name takes the first one.
    """
    figure = whole(ax)
    figure.draw_without_rendering()
    pixels = ax.transData.transform(np.column_stack([x, y]))
    taken = [Bbox.from_extents(*pixel - 3, *pixel + 3) for pixel in pixels]
    for number, (name, point) in enumerate(zip(names, zip(x, y))):
        for (right, up, side), far in PLACES:
            text = ax.annotate(name, point, (right, up), textcoords="offset points", ha=side, fontsize=7)
            box = text.get_window_extent()
            inside = ax.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            inside &= not far or (ax.bbox.y0 <= box.y0 and box.y1 <= ax.bbox.y1)
            apart = [distance(box, pixel) for pixel in pixels]
            gap = apart.pop(number)
            nearest = far or all(other > gap + NEARER for other in apart)
            line_boxes = _line(box, pixels[number]) if far else []
            others = [one for one in taken if not one.contains(*pixels[number])]
            free = not any(overlap(box, one) for one in taken)
            if inside and nearest and free and not any(overlap(dot, one) for dot in line_boxes for one in others):
                taken += line_boxes
                if far:
                    shift = (right - math.copysign(1, right), up + 3)  # at the middle of the name's end
                    line = {"arrowstyle": "-", "linewidth": 0.5, "color": "0.4", "shrinkA": 0, "shrinkB": 2}
                    ax.annotate("", point, shift, textcoords="offset points", arrowprops=line)
                break
            text.remove()
        else:
            right, up, side = SIDES[0]
            text = ax.annotate(name, point, (right, up), textcoords="offset points", ha=side, fontsize=7)
        taken.append(text.get_window_extent())


def _line(box: Bbox, point: Sequence[float]) -> list[Bbox]:
    """Return small boxes along the line from the end of a name to its point, but for those at the point."""
    end = (box.x0 if box.x0 > point[0] else box.x1, (box.y0 + box.y1) / 2)
    dots = np.linspace(point, end, 24)[:-1]
    return [Bbox.from_extents(*dot - 1, *dot + 1) for dot in dots if math.dist(dot, point) > 5]


def distance(box: Bbox, point: Sequence[float]) -> float:
    """Return the distance of a point from a box, which is 0 inside of it."""
    across = max(box.x0 - point[0], 0.0, point[0] - box.x1)
    return math.hypot(across, max(box.y0 - point[1], 0.0, point[1] - box.y1))
