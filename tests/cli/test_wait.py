"""`millstream wait`."""

from collections.abc import Iterator

import pytest

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.wait import attempt_until
from tests.support.broker import Broker
from tests.support.command_line import run_millstream
from tests.support.ports import reserve_port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2}) as running:
        yield running


def test_it_tries_again_until_it_succeeds() -> None:
    outcomes = [CommandFailed("no"), CommandFailed("not yet"), None]
    pauses: list[int] = []

    def check() -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    assert attempt_until(check, is_over=lambda: False, pause=lambda: pauses.append(1)) is None
    assert len(pauses) == 2


def test_it_gives_up_in_time_and_wrong_usage_is_not_tried_again() -> None:
    def fail() -> None:
        raise CommandFailed("no")

    def misuse() -> None:
        raise CommandFailed("what?", exit_code=ExitCode.USAGE)

    assert str(attempt_until(fail, is_over=lambda: True, pause=lambda: None)) == "no"
    with pytest.raises(CommandFailed, match="what"):
        attempt_until(misuse, is_over=lambda: True, pause=lambda: None)


def test_a_broker_that_answers_ends_the_wait(broker: Broker) -> None:
    assert run_millstream("wait", "-t", "orders", bootstrap=broker.bootstrap).exit_code == 0


def test_what_is_missing_is_named(broker: Broker) -> None:
    short = ["wait", "--timeout", "0.1"]
    ran = run_millstream(*short, "-t", "none", bootstrap=broker.bootstrap)
    assert (ran.exit_code, "topic none does not exist" in ran.errors) == (3, True)
    ran = run_millstream(*short, "--nodes", "2", bootstrap=broker.bootstrap)
    assert (ran.exit_code, "1 of 2 nodes are alive" in ran.errors) == (3, True)
    ran = run_millstream(*short, bootstrap=f"127.0.0.1:{reserve_port()}")
    assert (ran.exit_code, "refused the connection" in ran.errors) == (3, True)
