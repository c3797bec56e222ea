"""Columns around buffers are what Arrow itself would make."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from millstream.lines import arrays

_PARSING = """
import sys
import numpy as np
import pyarrow as pa
from millstream.lines.arrays import of_numpy, of_texts
from millstream.lines.parser import EVENT_SCHEMA, LineParser, LineRules, SourceRule

lines = of_texts(['{"ts":1,"user":"u","cpu":1}', "1.2.3.4 x", None, "a=1"]).cast(pa.binary())
number = of_numpy(np.zeros(4, np.int64))
records = pa.RecordBatch.from_arrays(
    [lines, lines, of_texts(["t"] * 4), number.cast(pa.int32()), number,
     number.cast(pa.timestamp("us", tz="UTC"))],
    ["key", "value", "topic", "partition", "offset", "timestamp"],
)
for mask in ((), ("address", "user", "query")):
    rules = LineRules((SourceRule("z*", "json"),), "Europe/Berlin", mask, "s", ("cpu",), 1, 1)
    LineParser(rules, EVENT_SCHEMA.names).parse(records)
assert "pandas" not in sys.modules
"""


def test_parsing_does_not_import_pandas() -> None:
    pytest.importorskip("millstream.lines._scan", reason="needs the compiled scanner")
    subprocess.run([sys.executable, "-c", _PARSING], check=True, timeout=60)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.float64, np.bool_])
def test_numbers(kind: type) -> None:
    values = (np.arange(20) % 3).astype(kind)
    is_there = np.arange(20) % 2 == 0
    assert arrays.of_numpy(values).equals(pa.array(values))
    assert arrays.of_numpy(values, is_there).equals(pa.array(values, mask=~is_there))
    assert arrays.of_numpy(values[::2]).equals(pa.array(values[::2]))


def test_texts() -> None:
    for values in ([], ["a", None, "", "é", "x" * 300]):
        found = arrays.of_texts(values)
        found.validate(full=True)
        assert found.equals(pa.array(values, pa.string()))


def test_slices_are_read_from_where_they_begin() -> None:
    column = pa.array([None, 1, None, 3, 4, None, 6, 7, 8, 9], pa.int64()).slice(3, 6)
    assert arrays.is_valid(column).tolist() == [True, True, False, True, True, True]
    assert arrays.to_numpy(column)[[0, 1, 3, 4, 5]].tolist() == [3, 4, 6, 7, 8]
    assert arrays.is_valid(pa.array([1, 2])).tolist() == [True, True]


def test_no_rows() -> None:
    bare = pa.Array.from_buffers(pa.int64(), 0, [None, None])
    assert arrays.to_numpy(bare).tolist() == []
    assert arrays.is_valid(bare).tolist() == []
