from millstream.security.login_attempts import COUNTS_MAX, FORGOTTEN_SECONDS, LoginAttempts
from tests.support.set_clock import SetClock


def guess(attempts: LoginAttempts, clock: SetClock, count: int, user: str, address: str) -> float:
    """Guess as fast as the waits allow; the seconds that it took."""
    began = clock.seconds
    for _ in range(count):
        clock.seconds += attempts.wait_seconds(user, address)
        attempts.note_wrong(user, address)
    return clock.seconds - began


def test_a_few_slips_cost_nothing_and_then_the_wait_doubles() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    assert guess(attempts, clock, 5, "alice", "10.0.0.1") == 0
    waits = []
    for _ in range(12):
        waits.append(attempts.wait_seconds("alice", "10.0.0.1"))
        clock.seconds += waits[-1]
        attempts.note_wrong("alice", "10.0.0.1")
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_wait_gets_shorter_as_time_goes_by() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    guess(attempts, clock, 8, "alice", "10.0.0.1")
    before = attempts.wait_seconds("alice", "10.0.0.1")
    clock.seconds += 3
    assert attempts.wait_seconds("alice", "10.0.0.1") == before - 3
    clock.seconds += before
    assert attempts.wait_seconds("alice", "10.0.0.1") == 0


def test_others_do_not_wait() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    guess(attempts, clock, 12, "alice", "10.0.0.1")
    assert attempts.wait_seconds("alice", "10.0.0.1") > 0
    assert attempts.wait_seconds("alice", "10.0.0.2") == 0
    assert attempts.wait_seconds("bob", "10.0.0.1") == 0


def test_an_address_that_tries_many_users_waits_with_each() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    for number in range(25):
        attempts.note_wrong(f"user{number}", "10.0.0.1")
    assert attempts.wait_seconds("another", "10.0.0.1") > 0
    assert attempts.wait_seconds("another", "10.0.0.2") == 0


def test_a_user_whom_many_addresses_try_waits_a_moment_only() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    for number in range(500):
        attempts.note_wrong("alice", f"10.0.{number // 250}.{number % 250}")
    assert 0 < attempts.wait_seconds("alice", "10.9.9.9") <= 10


def test_one_password_from_many_addresses_counts_once_for_the_user() -> None:
    attempts = LoginAttempts(SetClock())
    for number in range(500):
        address = f"10.0.{number // 250}.{number % 250}"
        attempts.note_wrong("alice", address, is_known=number > 0)
    assert attempts.wait_seconds("alice", "10.9.9.9") == 0


def test_the_wait_of_an_address_has_a_limit_of_its_own() -> None:
    attempts = LoginAttempts(SetClock(), address_seconds_max=10.0)
    for number in range(100):
        attempts.note_wrong(f"user{number}", "10.0.0.1")
    assert attempts.wait_seconds("another", "10.0.0.1") == 10


def test_a_right_password_ends_the_count_of_that_user_there() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    guess(attempts, clock, 5, "alice", "10.0.0.1")
    attempts.note_right("alice", "10.0.0.1")
    attempts.note_wrong("alice", "10.0.0.1")
    assert attempts.wait_seconds("alice", "10.0.0.1") == 0


def test_a_guesser_who_has_a_user_of_their_own_is_not_forgiven_the_others() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    for number in range(25):
        attempts.note_wrong(f"user{number}", "10.0.0.1")
        attempts.note_right("mallory", "10.0.0.1")
    assert attempts.wait_seconds("another", "10.0.0.1") > 0


def test_addresses_of_one_network_count_together() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    for number in range(8):
        attempts.note_wrong("alice", f"2001:db8::{number:x}")
    assert attempts.wait_seconds("alice", "2001:db8::ffff") > 0
    assert attempts.wait_seconds("alice", "2001:db8:0:1::1") == 0


def test_counts_are_forgotten_and_bounded() -> None:
    clock = SetClock()
    attempts = LoginAttempts(clock)
    for number in range(COUNTS_MAX + 1000):
        attempts.note_wrong(f"user{number}", f"address {number}")
    assert attempts.count() <= 3 * COUNTS_MAX
    clock.seconds += FORGOTTEN_SECONDS + 1
    attempts.note_wrong("alice", "10.0.0.1")
    assert attempts.count() == 3
