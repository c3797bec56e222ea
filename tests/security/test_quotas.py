from collections.abc import Mapping

import pytest

from millstream.errors import KafkaError
from millstream.security.quotas import (
    CONNECTIONS,
    MUTATIONS,
    PRODUCE,
    REQUEST_TIME,
    Limit,
    RateWindow,
    TokenBucket,
    capped_wait,
    check_address,
    checked_quotas,
    find_limit,
)

ORDER: list[tuple[str | None, str | None]] = [
    ("u", "c"),
    ("u", ""),
    ("u", None),
    ("", "c"),
    ("", ""),
    ("", None),
    (None, "c"),
    (None, ""),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_applies(first: int) -> None:
    options: dict[tuple[str | None, str | None], Mapping[str, str]] = {
        where: {PRODUCE: str(number + 1)} for number, where in enumerate(ORDER) if number >= first
    }
    found = find_limit(PRODUCE, "u", "c", lambda user, client: options.get((user, client), {}))
    user, client = ORDER[first]
    # A default is a limit for each user or client, not for all of them together.
    shared_by = (None if user is None else "u", None if client is None else "c")
    assert found == Limit(first + 1, *shared_by)


def test_without_a_quota_there_is_no_limit() -> None:
    assert find_limit(PRODUCE, "u", "c", lambda user, client: {MUTATIONS: "1"}) is None


def test_a_client_may_begin_with_a_burst_and_then_waits() -> None:
    window = RateWindow(11, 1)
    window.record(1000, 0)
    assert window.wait_seconds(100, 0) == 0
    window.record(100, 0)
    assert window.wait_seconds(100, 0) == pytest.approx(1)
    assert window.wait_seconds(100, 1) == pytest.approx(1)
    assert window.wait_seconds(100, 12) == 0


def test_a_client_that_waits_as_told_gets_its_rate() -> None:
    window, now, used = RateWindow(11, 1), 0.0, 0
    while now < 100:
        window.record(50, now)
        used += 50
        now += 0.01 + window.wait_seconds(100, now)
    # The rate, and the burst at the beginning.
    assert 100 * 100 * 0.9 <= used <= 110 * 100 * 1.1


def test_a_wait_is_an_hour_at_most_and_for_request_time_one_sample() -> None:
    assert capped_wait(MUTATIONS, 3e6, sample_seconds=1) == 3600
    assert capped_wait(PRODUCE, 7.0, sample_seconds=1) == 7
    assert capped_wait(REQUEST_TIME, 7.0, sample_seconds=1) == 1
    assert capped_wait(REQUEST_TIME, 0.5, sample_seconds=1) == 0.5


def test_changes_of_the_cluster_take_tokens() -> None:
    bucket = TokenBucket()
    rate, burst = 2.0, 10.0
    bucket.take(10, rate, burst, 0)
    assert bucket.wait_seconds(rate, burst, 0) == 0
    bucket.take(4, rate, burst, 0)
    assert bucket.wait_seconds(rate, burst, 0) == 2
    assert bucket.wait_seconds(rate, burst, 1) == 1
    assert bucket.wait_seconds(rate, burst, 2) == 0


@pytest.mark.parametrize(
    ("changes", "is_ip", "problem"),
    [
        ({"no_such": 1.0}, False, "unknown quota"),
        ({CONNECTIONS: 1.0}, False, "unknown quota"),
        ({PRODUCE: 1.0}, True, "unknown quota"),
        ({PRODUCE: -1.0}, False, "above 0"),
        ({PRODUCE: 0.0}, False, "above 0"),
        ({PRODUCE: float("nan")}, False, "above 0"),
        ({PRODUCE: 1.5}, False, "whole number"),
        ({CONNECTIONS: -1.0}, True, "at least 0"),
    ],
)
def test_quotas_that_cannot_be(changes: dict[str, float], is_ip: bool, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem):
        checked_quotas(changes, is_ip=is_ip)


def test_quotas_are_stored_as_kafka_writes_them() -> None:
    changes = {PRODUCE: 1024.0, MUTATIONS: 0.5}
    assert checked_quotas(changes, is_ip=False) == {PRODUCE: "1024", MUTATIONS: "0.5"}
    assert checked_quotas({PRODUCE: None}, is_ip=False) == {PRODUCE: None}
    assert checked_quotas({CONNECTIONS: 0.0}, is_ip=True) == {CONNECTIONS: "0"}


def test_addresses() -> None:
    check_address("::1")
    with pytest.raises(KafkaError, match="not an IP address"):
        check_address("localhost")
