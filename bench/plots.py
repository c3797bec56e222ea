"""Bars for the rows that compare us with Kafka: one picture per part."""

from collections.abc import Sequence
from pathlib import Path

from bench.rows import KAFKA, Row


def draw(rows: Sequence[Row], folder: Path) -> dict[str, str]:
    """Write an SVG per part into `folder`; their names by part. Nothing without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return {}
    matplotlib.use("svg")
    # Equal figures give equal files, and text stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none"})
    folder.mkdir(parents=True, exist_ok=True)
    plots = {}
    for part in dict.fromkeys(row.part for row in rows):
        compared = [row for row in rows if row.part == part and row.against == KAFKA and row.ratio]
        if compared:
            _draw_part(part, compared, folder / f"{part}.svg")
            plots[part] = f"{folder.name}/{part}.svg"
    return plots


def _draw_part(part: str, rows: Sequence[Row], path: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.5 + 0.38 * len(rows)), layout="constrained")
    for at, row in enumerate(reversed(rows)):
        ratio, spread = row.ratio, row.ratio_spread
        assert ratio is not None
        assert spread is not None
        is_good = row.verdict != "MISS"
        axes.barh(at, ratio, color="#2a7f62" if is_good else "#c0532f", height=0.6)
        axes.plot(spread, (at, at), color="black", linewidth=1)
        if row.target is not None:
            axes.plot((row.target.limit,) * 2, (at - 0.4, at + 0.4), color="black", linewidth=2)
    axes.axvline(1, color="grey", linewidth=1, linestyle=":")
    axes.set_yticks(range(len(rows)), [row.name for row in reversed(rows)])
    axes.set_xscale("log")
    axes.set_xlabel("ratio to Kafka (thin line: spread; thick mark: target)")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
