"""Draws the figures of "How the log works" from the files of a partition.

    python scripts/draw_log.py PARTITION_DIR OFFSET FOLDER

Writes segments.svg and lookup.svg. `millstream storage` reads the directory, so the figures show
what the commands of that page print.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH, MARGIN = 900, 24
ROW, GAP, LABEL = 44, 10, 210
INK, PAPER, LINE, BATCH, ACTIVE, FOUND = (
    "#1b1f24", "#ffffff", "#8a939e", "#d7e3f4", "#cfeedd", "#f2b84b",
)  # fmt: skip
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace' font-size='13'"


@dataclass(frozen=True, slots=True)
class Segment:
    base_offset: int
    size_bytes: int
    # The position of each batch.
    batches: list[int]


class Drawing:
    """Collects shapes; y grows downwards."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._shapes: list[str] = []
        self.height = MARGIN

    def box(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._shapes.append(
            f"<rect x='{x:.1f}' y='{y:.1f}' width='{max(width, 1):.1f}' height='{height:.1f}' "
            f"fill='{fill}' stroke='{LINE}'/>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = LINE) -> None:
        self._shapes.append(
            f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{color}'/>"
        )

    def text(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        self._shapes.append(
            f"<text x='{x:.1f}' y='{y:.1f}' fill='{INK}' text-anchor='{anchor}' {FONT}>"
            f"{text}</text>"
        )

    def svg(self) -> str:
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {self.height:.0f}' "
            f"role='img'>\n<title>{self._title}</title>\n"
            f"<rect width='100%' height='100%' rx='8' fill='{PAPER}'/>\n"
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )


def draw_segments(segments: Sequence[Segment]) -> str:
    """One bar per segment, as long as its bytes; a line at each batch; the last one grows."""
    drawing = Drawing("The segments of a partition, and the batches in them")
    largest = max(segment.size_bytes for segment in segments)
    room = WIDTH - 2 * MARGIN
    for number, segment in enumerate(segments):
        y = drawing.height + 16
        is_active = number == len(segments) - 1
        scale = room / largest
        drawing.text(MARGIN, y, f"{segment.base_offset:020}.log")
        facts = f"{segment.size_bytes:,} bytes, {len(segment.batches)} batches"
        note = "active: appends go here" if is_active else facts
        drawing.text(WIDTH - MARGIN, y, note, "end")
        fill = ACTIVE if is_active else BATCH
        drawing.box(MARGIN, y + 8, segment.size_bytes * scale, ROW, fill)
        for position in segment.batches[1:]:
            x = MARGIN + position * scale
            drawing.line(x, y + 8, x, y + 8 + ROW)
        drawing.height = y + 8 + ROW + GAP
    drawing.height += MARGIN - GAP
    return drawing.svg()


def draw_lookup(
    segments: Sequence[Segment], entries: Sequence[dict[str, int]], fetch: dict[str, Any]
) -> str:
    """The three steps from an offset to a batch: file, index, scan."""
    drawing = Drawing(f"How the batch with offset {fetch['offset']} is found")
    chosen = next(each for each in segments if each.base_offset == fetch["segment"])
    _draw_choice(drawing, segments, chosen, fetch["offset"])
    own = [entry for entry in entries if entry["segment"] == chosen.base_offset]
    _draw_probes(drawing, own, fetch["probes"])
    _draw_scan(drawing, chosen, fetch)
    return drawing.svg()


def _draw_choice(
    drawing: Drawing, segments: Sequence[Segment], chosen: Segment, offset: int
) -> None:
    y = drawing.height + 16
    drawing.text(MARGIN, y, f"1. The file: the last one that starts at or before offset {offset}")
    width = (WIDTH - 2 * MARGIN - GAP * (len(segments) - 1)) / len(segments)
    for number, segment in enumerate(segments):
        x = MARGIN + number * (width + GAP)
        drawing.box(x, y + 12, width, ROW, FOUND if segment is chosen else BATCH)
        drawing.text(x + width / 2, y + 12 + ROW / 2 + 5, f"{segment.base_offset:,} ...", "middle")
    drawing.height = y + 12 + ROW + GAP


def _draw_probes(
    drawing: Drawing, entries: Sequence[dict[str, int]], probes: Sequence[dict[str, Any]]
) -> None:
    y = drawing.height + 22
    text = f"2. The index: a binary search reads {len(probes)} of {len(entries)} entries"
    drawing.text(MARGIN, y, text)
    width = (WIDTH - 2 * MARGIN) / max(len(entries), 1)
    for number in range(len(entries)):
        drawing.box(MARGIN + number * width, y + 12, width, 18, BATCH)
    for step, probe in enumerate(probes, 1):
        x = MARGIN + (probe["entry"] + 0.5) * width
        bottom = y + 30 + step * 20
        drawing.box(x - width / 2, y + 12, width, 18, FOUND)
        side = "right" if probe["below"] else "left"
        drawing.text(MARGIN, bottom + 4, f"offset {probe['key']:,}: go {side}")
        drawing.line(MARGIN + LABEL, bottom, x, bottom)
        drawing.line(x, bottom, x, y + 30)
    drawing.height = y + 40 + len(probes) * 20


def _draw_scan(drawing: Drawing, chosen: Segment, fetch: dict[str, Any]) -> None:
    y = drawing.height + 22
    entry, batch = fetch["entry"], fetch["batch"]
    begin = 0 if entry is None else entry["position"]
    text = f"3. The file from byte {begin:,}: {fetch['batches_scanned']} batch headers"
    drawing.text(MARGIN, y, text)
    scale = (WIDTH - 2 * MARGIN) / chosen.size_bytes
    ends = [*chosen.batches[1:], chosen.size_bytes]
    for position, end in zip(chosen.batches, ends, strict=True):
        is_found = batch is not None and position == batch["position"]
        fill = FOUND if is_found else BATCH
        drawing.box(MARGIN + position * scale, y + 12, (end - position) * scale, ROW, fill)
    drawing.height = y + 12 + ROW
    if batch is not None:
        x = MARGIN + (batch["position"] + batch["size_bytes"] / 2) * scale
        found = f"offsets {batch['base_offset']:,} to {batch['last_offset']:,}"
        drawing.line(x, drawing.height, x, drawing.height + 12)
        anchor = "end" if x > WIDTH / 2 else "start"
        drawing.text(x, drawing.height + 26, f"{found}, {batch['size_bytes']:,} bytes", anchor)
        drawing.height += 26
    drawing.height += MARGIN


def ask(*arguments: str) -> Any:
    """What a `millstream storage` command prints; a list where it prints lines."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "storage", *arguments, "--json"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    if arguments[0] == "dump":
        return [json.loads(line) for line in done.stdout.splitlines()]
    return json.loads(done.stdout)


def read_segments(directory: str) -> list[Segment]:
    batches: dict[str, list[int]] = {}
    for batch in ask("dump", directory):
        batches.setdefault(Path(batch["path"]).name, []).append(batch["position"])
    return [
        Segment(row["base_offset"], row["size_bytes"], batches.get(Path(row["path"]).name, [0]))
        for row in ask("segments", directory)
    ]


def main() -> None:
    directory, offset, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    segments = read_segments(directory)
    fetch = ask("explain", directory, offset)["fetch"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "segments.svg").write_text(draw_segments(segments))
    entries = ask("index", directory)["offsets"]
    (folder / "lookup.svg").write_text(draw_lookup(segments, entries, fetch))


if __name__ == "__main__":
    main()
