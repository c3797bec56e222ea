"""What the compiled module offers: the same as `_scan_pure`."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines.line_patterns import Steps

NAME: str

class Scanner:
    def __init__(
        self,
        wanted: Collection[str],
        gauges: Sequence[str],
        patterns: Sequence[Sequence[Steps]] = (),
    ) -> None: ...
    def faults(self, values: pa.BinaryArray) -> NDArray[np.int8]: ...
    def scan(
        self,
        values: pa.BinaryArray,
        sources: pa.StringArray,
        records_us: pa.Int64Array,
        given: NDArray[np.int8],
        custom: pa.MapArray | None,
    ) -> dict[str, pa.Array]: ...
