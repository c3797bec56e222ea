"""What Flink has to find, from a plain reading of the lines."""

import pytest

pytest.importorskip("pyspark", reason="the extra `pipeline` is not installed: no pyspark")
pytest.importorskip("deltalake", reason="the extra `pipeline` is not installed: no deltalake")

from bench.flink import windows_of
from millstream.ingest.traffic import TrafficLine

_ACCESS = b'10.0.0.1 - - [15/Jan/2027:08:00:00 +0000] "GET / HTTP/1.1" %d 300 "-" "a \\"b\\" c"'


def test_lines_errors_and_bytes_are_counted_by_minute_and_host() -> None:
    lines = [
        TrafficLine(61_000, "web-1/access", _ACCESS % 200),
        TrafficLine(62_000, "web-1/access", _ACCESS % 502),
        TrafficLine(63_000, "web-1/health", b"ts=1 host=web-1 cpu=0.5"),
        TrafficLine(64_000, "app-1/requests", b'{"status":500}'),
        TrafficLine(120_000, "web-1/access", _ACCESS % 404),
    ]
    assert windows_of(lines) == {
        (60_000, "web-1"): (3, 1, 600),
        (60_000, "app-1"): (1, 1, 0),
        (120_000, "web-1"): (1, 0, 300),
    }
