"""`millstream share` against a node with a share group.

Covers cli/share.py, cli/share_view.py, cli/share_reset.py, cli/share_peek.py, cli/share_dead.py,
cli/share_letters.py, cli/share_retry.py,
client/share_queue.py, broker/handlers/peek_share_group.py, coordinators/share/peeking.py.
"""

import json
import time
from collections.abc import Iterator

import pytest

from millstream.cli.record_text import TextRecord
from millstream.cli.share_letters import Letter
from millstream.cli.share_retry import unsent
from millstream.model import Codec, TopicPartition
from millstream.records.builder import build_batch
from millstream.records.records import Record
from tests.broker.handlers.exchanges import produce
from tests.broker.handlers.test_share_fetch import LONG_MS, Queue, delete_records
from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.share_member import ACCEPT, REJECT, RELEASE, set_group_options
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PERMITTED = "errors.deadletterqueue.group.enable"


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


# -- peek and dead ------------------------------------------------------------------------


def test_peek_shows_the_queue_and_acquires_nothing(broker: Broker, queue: Queue) -> None:
    [member] = queue.members
    member.acknowledge((4, 4, [RELEASE]))
    queue.produce(3)
    for _ in range(2):
        [row] = json.loads(run(broker, "peek", queue.name, "--json").output)
        assert (row["start"], row["next"], row["end"]) == (4, 10, 13)
        assert (row["in_flight"], row["retried"], row["waiting"]) == (5, 1, 3)
        assert (row["delayed"], row["dying"], row["oldest_ms"] > 0) == (0, 0, True)
    retried, locked = row["ranges"]
    assert (retried["state"], retried["deliveries"], retried["member_id"]) == ("retried", 1, None)
    assert (locked["first"], locked["last"], locked["state"]) == (5, 9, "in flight")
    assert (locked["member_id"], 0 < locked["left_ms"] <= 30_000) == (member.member_id, True)
    shown = run(broker, "peek", queue.name).output.splitlines()
    assert shown[1].split()[:8] == [queue.name, "0", "4", "10", "13", "5", "1", "3"]
    assert member.member_id in run(broker, "peek", queue.name, "--ranges").output


def test_peek_at_a_group_that_nobody_reads_shows_what_waits(broker: Broker, queue: Queue) -> None:
    run(broker, "reset", "later", "-t", f"{queue.name}:0", "--to", "2", "-y")
    [row] = json.loads(run(broker, "peek", "later", "--json").output)
    assert (row["start"], row["waiting"], row["in_flight"]) == (2, 8, 0)
    missing = run(broker, "peek", "nobody")
    assert (missing.exit_code, "does not exist" in missing.errors) == (1, True)


def test_peek_after_the_last_member_has_left_leaves_finished_records_out(
    broker: Broker, queue: Queue
) -> None:
    [member] = queue.members
    # The stored start follows with the next change: it is still at the beginning.
    member.acknowledge((4, 9, [ACCEPT]))
    queue.produce(2)
    member.close_session()
    member.leave()
    [row] = json.loads(run(broker, "peek", queue.name, "--json").output)
    assert (row["waiting"], row["oldest_ms"] is None) == (2, False)
    delete_records(queue, before=12)
    [row] = json.loads(run(broker, "peek", queue.name, "--json").output)
    assert (row["waiting"], row["oldest_ms"]) == (0, None)


@pytest.mark.parametrize("copies", ["false", "true"])
def test_dead_letters_are_shown_and_sent_again(broker: Broker, copies: str) -> None:
    queue = Queue(broker.bootstrap)
    letters = f"dlq.{queue.name}"
    run(broker, "create", letters, "-c", f"{PERMITTED}=true", command="topic")
    assert run(broker, "dead", queue.name).exit_code == 1, "no member has come yet"
    queue.produce(3)
    member = queue.member()
    unset = run(broker, "dead", queue.name)
    assert (unset.exit_code, "has no topic for dead letters" in unset.errors) == (1, True)
    set_group_options(
        queue.client,
        queue.name,
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable=copies,
    )
    member.fetch(wait_ms=LONG_MS)
    member.acknowledge((0, 0, [ACCEPT]), (1, 2, [REJECT]))

    def found() -> list[dict[str, object]]:
        ran = run(broker, "dead", queue.name, "--json")
        assert ran.exit_code == 0, ran.errors
        return json.loads(ran.output)  # type: ignore[no-any-return]

    wait_until(lambda: len(found()) == 2, "two letters")
    first, second = found()
    assert (first["offset"], second["offset"], first["deliveries"]) == (1, 2, 1)
    assert (first["reason"], first["is_copy"]) == ("Offset rejected by client.", copies == "true")
    assert "Offset rejected by client." in run(broker, "dead", queue.name, "-n", "1").output
    refused = run(broker, "dead", queue.name, "--retry")
    assert (refused.exit_code, "requires -y" in refused.errors) == (1, True)
    again = run(broker, "dead", queue.name, "--retry", "-y")
    assert "sent 2 records again" in again.errors
    assert member.fetch(wait_ms=LONG_MS, records=1).ranges[0][0] == 3
    assert [one["is_retried"] for one in found()] == [True, True]
    once = run(broker, "dead", queue.name, "--retry", "-y")
    assert (once.exit_code, "sent 0 records again" in once.errors) == (0, True)
    values = run(broker, queue.name, "-e", command="consume").output.split()
    assert values == ["v0", "v1", "v2", "v1", "v2"]
    run(broker, "delete", f"{queue.name}.retried", "-y", command="group")
    oldest = run(broker, "dead", queue.name, "--retry", "-y", "-n", "1", "--json")
    assert [one["offset"] for one in json.loads(oldest.output)] == [1]
    assert [one["is_retried"] for one in found()] == [True, False]
    queue.close()


def test_records_that_are_gone_are_not_sent_again(broker: Broker) -> None:
    queue = Queue(broker.bootstrap)
    letters = f"dlq.{queue.name}"
    run(broker, "create", letters, "-c", f"{PERMITTED}=true", command="topic")
    set_group_options(queue.client, queue.name, errors_deadletterqueue_topic_name=letters)
    queue.produce(2, 1)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS)
    member.acknowledge((0, 2, [REJECT]))
    wait_until(
        lambda: len(json.loads(run(broker, "dead", queue.name, "--json").output)) == 3, "letters"
    )
    delete_records(queue, before=2)
    again = run(broker, "dead", queue.name, "--retry", "-y")
    assert (again.exit_code, "sent 1 record again" in again.errors) == (0, True), again.errors
    assert "2 records not sent: deleted meanwhile" in again.errors
    assert "sent 0 records again" in run(broker, "dead", queue.name, "--retry", "-y").errors
    queue.close()


def test_a_record_of_nothing_but_headers_is_not_sent_again(broker: Broker) -> None:
    queue = Queue(broker.bootstrap)
    letters = f"dlq.{queue.name}"
    run(broker, "create", letters, "-c", f"{PERMITTED}=true", command="topic")
    set_group_options(queue.client, queue.name, errors_deadletterqueue_topic_name=letters)
    now_ms = int(time.time() * 1000)
    bomb = [Record(0, now_ms, None, b"bomb", [("", b"")] * 100_000)]
    data = build_batch(bomb, base_offset=0, codec=Codec.ZSTD)
    assert produce(queue.client, queue.name, data).error_code == 0
    queue.produce(1)
    member = queue.member()
    assert member.fetch(wait_ms=LONG_MS).ranges == [(0, 1, 1)]
    member.acknowledge((0, 1, [REJECT]))
    wait_until(
        lambda: len(json.loads(run(broker, "dead", queue.name, "--json").output)) == 2, "letters"
    )
    again = run(broker, "dead", queue.name, "--retry", "-y")
    assert (again.exit_code, "sent 1 record again" in again.errors) == (0, True), again.errors
    assert "record at offset 0 has 100000 headers, up to 10000 are read" in again.errors
    queue.close()


def test_letters_are_shown_without_permission_for_the_group_that_retries() -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(settings=settings) as guarded:
        run(guarded, "create", "dlq.w", command="topic")
        denied = ("--deny", "--principal", "User:ANONYMOUS", "--operation", "all")
        added = run(guarded, "add", *denied, "--group", "w.retried", command="acl")
        assert added.exit_code == 0, added.errors
        shown = run(guarded, "dead", "w", "-t", "dlq.w")
        assert (shown.exit_code, "0 dead letters" in shown.errors) == (0, True), shown.errors
        unknown = [line for line in shown.errors.splitlines() if "not known" in line]
        assert len(unknown) == 1
        assert "GROUP_AUTHORIZATION_FAILED" in unknown[0]
        refused = run(guarded, "dead", "w", "-t", "dlq.w", "--retry", "-y")
        assert (refused.exit_code, "GROUP_AUTHORIZATION_FAILED" in refused.errors) == (1, True)


def test_letters_of_a_partition_are_sent_in_order_whatever_their_times_are() -> None:
    def letter(partition: int, offset: int, written_ms: int) -> Letter:
        record = TextRecord("dlq.t", partition, offset, written_ms, None, None, [])
        return Letter(TopicPartition("t", 0), 0, 1, "", written_ms, record)

    letters = [letter(0, 4, 10), letter(0, 5, 30), letter(0, 6, 15), letter(1, 0, 20)]
    left = unsent(letters, {TopicPartition("dlq.t", 0): 5})
    assert [(one.place.partition, one.letter.offset) for one in left] == [(1, 0), (0, 5), (0, 6)]


def test_records_may_be_sent_for_later(broker: Broker) -> None:
    queue = Queue(broker.bootstrap)
    member = queue.member()
    send = ("produce", queue.name)
    wrong = run_millstream(*send, "--delay", "2h", "--ttl", "1h", bootstrap=broker.bootstrap)
    assert (wrong.exit_code, "--ttl must be longer" in wrong.errors) == (2, True)
    for options in (["--delay", "1h"], ["--ttl", "1h"]):
        ran = run_millstream(*send, *options, bootstrap=broker.bootstrap, stdin="x\n")
        assert ran.exit_code == 0, ran.errors
    assert member.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 1)]
    [row] = json.loads(run(broker, "peek", queue.name, "--json").output)
    assert (row["delayed"], row["in_flight"], row["waiting"]) == (1, 1, 0)
    queue.close()
