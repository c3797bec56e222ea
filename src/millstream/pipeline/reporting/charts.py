"""Charts as SVG, drawn by hand: bars in rows, and columns over time."""

import html
import math
from collections.abc import Sequence
from typing import Final

_BAR_WIDTH: Final = 220
_BAR_HEIGHT: Final = 12
_WIDTH: Final = 960
_HEIGHT: Final = 130
_LEFT: Final = 64
_BOTTOM: Final = 20
_TOP: Final = 8
# A label needs about this much room.
_LABEL_WIDTH: Final = 46


def bar(share: float) -> str:
    """One bar, as long as its share of the longest."""
    width = round(_BAR_WIDTH * share, 1)
    return (
        f'<svg width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" role="img" '
        f'aria-label="{share:.0%} of the largest">'
        f'<rect width="{width:g}" height="{_BAR_HEIGHT}" rx="2" fill="currentColor"/></svg>'
    )


def column_chart(
    labels: Sequence[str], values: Sequence[float], texts: Sequence[str], *, largest: str
) -> str:
    """A column for each value, with its label and its text when pointed at."""
    top = max(values, default=0.0)
    step = (_WIDTH - _LEFT) / max(1, len(values))
    room = _HEIGHT - _TOP - _BOTTOM
    base = _HEIGHT - _BOTTOM
    longest = max((len(label) for label in labels), default=0)
    every = max(1, math.ceil(max(_LABEL_WIDTH, longest * 7) / step))
    drawn = []
    for index, (label, value, text) in enumerate(zip(labels, values, texts, strict=True)):
        height = room * value / top if top else 0.0
        left = _LEFT + index * step
        drawn.append(
            f'<rect x="{left + step * 0.1:.1f}" y="{base - height:.1f}" width="{step * 0.8:.1f}" '
            f'height="{height:.1f}" fill="currentColor">'
            f"<title>{html.escape(label)}: {html.escape(text)}</title></rect>"
        )
        if index % every == 0:
            drawn.append(
                f'<text x="{left + step / 2:.1f}" y="{_HEIGHT - 5}" text-anchor="middle">'
                f"{html.escape(label)}</text>"
            )
    scale = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{html.escape(text)}</text>'
        for y, text in ((_TOP, largest), (base, "0"))
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{len(values)} columns, at most {html.escape(largest)}">'
        f"{scale}{''.join(drawn)}</svg>"
    )
