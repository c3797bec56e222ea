"""The scanner of lines in use: compiled, or in Python for installs without a C compiler.

Both give the same columns. `IMPLEMENTATION` is the one in use; `pure()` is always there.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.lines.line_patterns import Steps


class Scanner(Protocol):
    """Reads values as lines; the columns it makes are those of `schema.SCANNED`."""

    def faults(self, values: pa.BinaryArray) -> NDArray[np.int8]: ...
    def scan(
        self,
        values: pa.BinaryArray,
        sources: pa.StringArray,
        records_us: pa.Int64Array,
        given: NDArray[np.int8],
        custom: pa.MapArray | None,
    ) -> dict[str, pa.Array]: ...


class Implementation(Protocol):
    NAME: str

    def Scanner(
        self,
        wanted: Collection[str],
        gauges: Sequence[str],
        # Of each rule that has some, in the order of trying.
        patterns: Sequence[Sequence[Steps]] = (),
    ) -> Scanner: ...


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.lines import _scan
        except ImportError:
            return None
    else:
        from millstream.lines import _scan
    return cast(Implementation, _scan)


def pure() -> Implementation:
    from millstream.lines import _scan_pure

    return cast(Implementation, _scan_pure)


COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or pure()
