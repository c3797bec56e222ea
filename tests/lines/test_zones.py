"""Whole columns of times from a zone to UTC and back, as Python does it one by one."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.lines import zones

EPOCH = datetime(1970, 1, 1)
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")
# With years whose offsets had seconds, and around changes of the clock.
seconds = st.integers(-3_000_000_000, 4_000_000_000) | st.integers(1774746000, 1774749600)


def micros(time: datetime) -> int:
    return (time.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)


@given(st.lists(seconds, min_size=1, max_size=20), st.sampled_from(ZONES))
def test_a_local_time_is_that_of_python(values: list[int], zone: str) -> None:
    local = [EPOCH + timedelta(seconds=value) for value in values]
    expected = [micros(each.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)) for each in local]
    found = zones.utc_of(np.array(values, np.int64) * 1_000_000, zone)
    assert found.tolist() == expected


@given(st.lists(seconds, min_size=1, max_size=20), st.sampled_from(ZONES))
def test_a_time_of_utc_is_that_of_python(values: list[int], zone: str) -> None:
    times = [datetime.fromtimestamp(value, UTC) for value in values]
    expected = [micros(each.astimezone(ZoneInfo(zone))) for each in times]
    found = zones.local_of(np.array(values, np.int64) * 1_000_000, zone)
    assert found.tolist() == expected


@pytest.mark.parametrize("zone", ZONES)
def test_times_that_python_cannot_name_pass(zone: str) -> None:
    far = np.array([-(2**62), 2**62, -62_135_596_800_000_000, 253_402_300_799_999_999], np.int64)
    for found in (zones.utc_of(far, zone), zones.local_of(far, zone)):
        assert (np.abs(found - far) <= 86_400_000_000).all()
