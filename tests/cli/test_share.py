"""`millstream share` against a node with a share group.

Covers cli/share.py, cli/share_view.py, cli/share_reset.py.
"""

import json
from collections.abc import Iterator

import pytest

from tests.broker.handlers.test_share_fetch import LONG_MS, Queue
from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.share_member import ACCEPT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"offsets.topic.num.partitions": "2"}) as running:
        yield running


@pytest.fixture
def queue(broker: Broker) -> Iterator[Queue]:
    """Ten records, of which four are acknowledged; its member is there."""
    made = Queue(broker.bootstrap)
    made.produce(10)
    member = made.member()
    member.fetch(wait_ms=LONG_MS)
    member.acknowledge((0, 3, [ACCEPT]))
    yield made
    made.close()


def run(broker: Broker, *arguments: str, command: str = "share") -> Ran:
    return run_millstream(command, *arguments, bootstrap=broker.bootstrap)


def test_share_groups_are_listed_and_described(broker: Broker, queue: Queue) -> None:
    assert queue.name in run(broker, "list").output
    assert "share" in run(broker, "list", "--type", "share", command="group").output
    described = run(broker, "describe", queue.name)
    assert described.output.split()[-5:] == [queue.name, "0", "0", "6", "1"]
    assert "Stable, 1 member" in described.errors
    found = json.loads(run(broker, "lag", queue.name, "--json").output)
    assert found == [{"group": queue.name, "topic": queue.name, "lag": 6}]
    late = run(broker, "lag", queue.name, "--max", "5")
    assert (late.exit_code, "more than 5 left" in late.errors) == (1, True)


def test_the_commands_of_consumer_groups_say_where_to_look(broker: Broker, queue: Queue) -> None:
    wrong = run(broker, "describe", queue.name, command="group")
    assert wrong.exit_code == 1
    assert f"millstream share describe {queue.name}" in wrong.errors
    # The lag of all consumer groups leaves share groups out.
    assert run(broker, "lag", command="group").exit_code == 0


def test_a_group_is_reset_and_deleted_once_its_members_have_left(
    broker: Broker, queue: Queue
) -> None:
    refused = run(broker, "reset", queue.name, "--to", "beginning", "-y")
    assert (refused.exit_code, "1 member" in refused.errors) == (1, True)
    assert run(broker, "delete", queue.name, "-y").exit_code == 1
    [member] = queue.members
    member.close_session()
    member.leave()
    shown = run(broker, "reset", queue.name, "--to", "-3", "--dry-run")
    assert shown.output.split()[-5:] == [queue.name, "0", "4", "7", "10"]
    assert run(broker, "reset", queue.name, "--to", "-3", "-y").exit_code == 0
    again = queue.member()
    assert again.fetch(wait_ms=LONG_MS).ranges == [(7, 9, 1)]
    again.leave()
    assert run(broker, "delete", queue.name, "-y").exit_code == 0
    missing = run(broker, "describe", queue.name)
    assert (missing.exit_code, "does not exist" in missing.errors) == (1, True)


def test_a_group_gets_its_start_before_its_first_consumer(broker: Broker, queue: Queue) -> None:
    done = run(broker, "reset", "new", "-t", f"{queue.name}:0", "--to", "2", "-y")
    assert done.exit_code == 0, done.errors
    assert json.loads(run(broker, "lag", "new", "--json").output)[0]["lag"] == 8
