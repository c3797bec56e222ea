from millstream.cluster.lease import Lease
from millstream.testing.clock import MovableClock


def test_a_lease_is_in_doubt_after_a_third_of_the_session_and_over_after_two():
    clock = MovableClock()
    lease = Lease(clock)
    assert (lease.is_valid(), lease.is_in_doubt()) == (False, True)
    lease.renew(sent_at=clock.monotonic(), session_timeout_ms=18_000)
    assert (lease.is_valid(), lease.is_in_doubt()) == (True, False)
    clock.advance(seconds=6)
    assert (lease.is_valid(), lease.is_in_doubt()) == (True, True)
    clock.advance(seconds=6)
    assert (lease.is_valid(), lease.is_in_doubt()) == (False, True)
    assert lease.silent_seconds() >= 12
    lease.renew(sent_at=clock.monotonic(), session_timeout_ms=18_000)
    assert (lease.is_valid(), lease.is_in_doubt()) == (True, False)
