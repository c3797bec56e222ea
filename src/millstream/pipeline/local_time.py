"""Instants as the clocks of the declared time zone show them, a column at a time."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines import zones


def local_days(times: pa.Array, zone: str) -> pa.Array:
    """`2026-09-21`; null for none."""
    days, places = np.unique(_local(times, zone).astype("datetime64[D]"), return_inverse=True)
    names = pa.array(np.datetime_as_string(days).astype(object), pa.string())
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
