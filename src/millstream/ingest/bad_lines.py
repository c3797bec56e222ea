"""Lines as they should not be: what a pipeline must survive and count.

Mixed into traffic on request, in a share that is drawn from a seed.
"""

from collections.abc import Iterable, Iterator
from random import Random

from millstream.ingest import log_lines
from millstream.ingest.traffic import TrafficLine

_YEAR_MS = 365 * 24 * 3600 * 1000


def with_bad_lines(
    lines: Iterable[TrafficLine], *, seed: int, share: float
) -> Iterator[TrafficLine]:
    """After some of the lines a bad one of the same source and record time."""
    random = Random(seed)
    for line in lines:
        yield line
        if random.random() < share:
            yield TrafficLine(line.time_ms, line.source, _bad_line(random, line))


def _bad_line(random: Random, line: TrafficLine) -> bytes:
    match random.randrange(6):
        case 0:
            return random.randbytes(40).replace(b"\n", b"") + b"\xff"
        case 1:
            return b"no time and no form at all"
        case 2:
            return b'{"ts":"2026-01-01T00:00:00Z","cut'
        case 3:
            return "caf\u00e9 without its encoding".encode("latin-1")
        case 4:
            return log_lines.json_line(line.time_ms + 70 * _YEAR_MS, service="dreamer", status=200)
        case _:
            return log_lines.json_line(line.time_ms - _YEAR_MS, service="sleeper", status=200)
