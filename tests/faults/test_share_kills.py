"""A share group through kill -9: what was confirmed counts, and nothing is lost."""

from pathlib import Path

import pytest

from millstream.errors import KafkaCode
from millstream.testing.topic import Topic
from tests.faults.share_kills import BATCH, SETTINGS, TOTAL, share_kill_rounds
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    REJECT,
    ShareMember,
    create_topic,
    lag_of,
    produce,
    set_group_options,
)

ROUNDS = 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_record_is_lost_or_delivered_again_after_kill_9(tmp_path: Path) -> None:
    seeds = list(range(ROUNDS))
    rounds = list(share_kill_rounds(tmp_path / "data", seeds, processes=3, consumers=4))
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == ROUNDS
    # Most confirmations have arrived.
    assert all(outcome.acknowledged > TOTAL // 2 for outcome in rounds)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_rejected_record_has_a_dead_letter_after_kill_9(tmp_path: Path) -> None:
    """The node is killed right after it has confirmed: letters are on their way then."""
    batches = 60
    name, letters = "orders", "dlq.orders"
    options = [part for option in SETTINGS.items() for part in ("--set", "=".join(option))]
    creates = ["--set", "errors.deadletterqueue.auto.create.topics.enable=true"]
    with MillstreamNode(tmp_path / "data", *options, *creates) as node:
        with RawClient(node.bootstrap) as client:
            create_topic(client, name)
            set_group_options(
                client,
                name,
                share_auto_offset_reset="earliest",
                errors_deadletterqueue_topic_name=letters,
                errors_deadletterqueue_copy_record_enable="true",
            )
            produce(client, name, *[BATCH] * batches)
        for kills in range(6):
            with ShareMember(node.bootstrap, name, name) as member:
                member.join()
                for _ in range(kills + 1):
                    _reject(member)
                node.kill()
            node.start()
        with ShareMember(node.bootstrap, name, name) as member:
            member.join()
            while lag_of(node.bootstrap, name, name):
                _reject(member)
            topic = Topic(letters, {"bootstrap.servers": node.bootstrap})
            found = topic.records()
    offsets = [int(dict(one.headers)["__dlq.errors.offset"] or b"") for one in found]
    assert set(offsets) == set(range(batches * BATCH))
    expected = [f"v{offset % BATCH}".encode() for offset in offsets]
    assert [one.value for one in found] == expected


def _reject(member: ShareMember) -> None:
    ranges = member.fetch(records=20, wait_ms=500).ranges
    if ranges:
        said = [(first, last, [REJECT]) for first, last, _ in ranges]
        assert member.acknowledge(*said) is KafkaCode.NONE
