"""Instants as the clocks of the declared time zone show them, a column at a time."""

from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines import zones

# Years 1 to 9999: what everybody who reads a table can name.
_INSTANTS: Final = pa.timestamp("us", tz="UTC")
_FIRST_US: Final = pa.scalar(datetime.min.replace(tzinfo=UTC), _INSTANTS).value
_LAST_US: Final = pa.scalar(datetime.max.replace(tzinfo=UTC), _INSTANTS).value
_FIRST_DAY: Final = np.datetime64("0001-01-01")
_LAST_DAY: Final = np.datetime64("9999-12-31")


def within_years(times: pa.Array) -> pa.Array:
    """What lies outside of years 1 to 9999 is at their beginning or end; null for none."""
    instants = times.cast(_INSTANTS).cast(pa.int64())
    clipped = pc.max_element_wise(instants, _FIRST_US, skip_nulls=False)
    return pc.min_element_wise(clipped, _LAST_US, skip_nulls=False).cast(_INSTANTS)


def local_days(times: pa.Array, zone: str) -> pa.Array:
    """`2026-09-21`; null for none. Of years 1 to 9999: what lies outside is in the first or the
    last of them."""
    days, places = np.unique(_local(times, zone).astype("datetime64[D]"), return_inverse=True)
    named = np.datetime_as_string(np.clip(days, _FIRST_DAY, _LAST_DAY))
    names = pa.array(named.astype(object), pa.string())
    return names.take(pa.array(places, mask=_nulls(times)))


def local_text(times: pa.Array, zone: str) -> pa.Array:
    """`2026-09-21 16:00:00.25`, as Spark writes them; null for none."""
    written = np.datetime_as_string(_local(times, zone)).astype(object)
    text = pa.array(written, pa.string(), mask=_nulls(times))
    spaced = pc.replace_substring(text, "T", " ")
    return pc.ascii_rtrim(pc.ascii_rtrim(spaced, "0"), ".")


def _local(times: pa.Array, zone: str) -> NDArray[np.datetime64]:
    instants = np.asarray(times.cast(pa.int64()).fill_null(0))
    return zones.local_of(instants, zone).astype("datetime64[us]")


def _nulls(times: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(times.is_null().cast(pa.uint8()), np.bool_)
