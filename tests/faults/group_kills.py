"""kill -9 of the node while offsets are committed and groups rebalance, again and again.

An acknowledged commit is a promise: after every kill each partition's committed offset is
at least the last that was acknowledged, and at most the last that was sent. Two groups
rebalance meanwhile, one of each protocol; their members live through the kills, and share
all partitions again afterwards.
"""

import contextlib
import random
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from millstream.errors import KafkaCode
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchGroupResponse, OffsetFetchRequest
from millstream.wire.apis.sync_group import SyncGroupRequest
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round
from tests.interop.groups.crowd import Crowd
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

TOPIC = "kept"
PARTITIONS = 6
# Commits that one client sends before it waits for the first answer.
PIPELINED = 50
KINDS = ("confluent-eager", "confluent-consumer")
_SUBSCRIPTION = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)
_REJOIN = {
    KafkaCode.UNKNOWN_MEMBER_ID,
    KafkaCode.ILLEGAL_GENERATION,
    KafkaCode.REBALANCE_IN_PROGRESS,
}
_TRY_AGAIN = {KafkaCode.NOT_COORDINATOR, KafkaCode.COORDINATOR_LOAD_IN_PROGRESS}


@dataclass
class Committed:
    """By partition: the last offset sent, and the last acknowledged."""

    sent: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    count: int = 0


class Committer:
    """Commits ever larger offsets for one group, through every outage."""

    def __init__(self, bootstrap: str, group: str, *, is_member: bool) -> None:
        self.group = group
        self.committed = Committed()
        self._bootstrap = bootstrap
        self._is_member = is_member
        self._member_id, self._generation = "", -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        offset = 0
        while not self._stop.is_set():
            # An outage: the node is on its way back.
            with contextlib.suppress(OSError), RawClient(self._bootstrap) as client:
                ask_coordinator(client, self.group)
                while not self._stop.is_set():
                    self._commit(client, range(offset + 1, offset + PIPELINED + 1))
                    offset += PIPELINED

    def _commit(self, client: RawClient, offsets: range) -> None:
        if self._is_member and self._generation < 0:
            self._join(client)
        for offset in offsets:
            self.committed.sent[offset % PARTITIONS] = offset
            client.send(
                OffsetCommitRequest(
                    group_id=self.group,
                    generation_id_or_member_epoch=self._generation,
                    member_id=self._member_id,
                    group_instance_id=None,
                    topics=[
                        OffsetCommitTopic(
                            name=TOPIC, partitions=[_position(offset % PARTITIONS, offset)]
                        )
                    ],
                ),
                8,
            )
        for offset in offsets:
            answer = client.receive(OffsetCommitRequest, 8)
            self._note(offset, KafkaCode(answer.topics[0].partitions[0].error_code))

    def _note(self, offset: int, code: KafkaCode) -> None:
        if code is KafkaCode.NONE:
            self.committed.acknowledged[offset % PARTITIONS] = offset
            self.committed.count += 1
        elif code in _REJOIN and self._is_member:
            self._member_id, self._generation = "", -1
        else:
            assert code in _TRY_AGAIN, code

    def _join(self, client: RawClient) -> None:
        joined = client.ask(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=6_000,
                rebalance_timeout_ms=1_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupProtocol(name="range", metadata=_SUBSCRIPTION)],
            ),
            3,
        )
        if joined.error_code != KafkaCode.NONE:
            return
        synced = client.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                group_instance_id=None,
                assignments=[],
            ),
            3,
        )
        if synced.error_code == KafkaCode.NONE:
            self._member_id, self._generation = joined.member_id, joined.generation_id


def _position(partition: int, offset: int) -> Any:
    return OffsetCommitPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata=str(offset),
    )


def ask_coordinator(client: RawClient, group: str) -> None:
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)


def problems(bootstrap: str, committer: Committer) -> list[str]:
    """What the node says now against what it has promised; nobody commits meanwhile."""
    with RawClient(bootstrap) as client:
        ask_coordinator(client, committer.group)
        row = OffsetFetchGroupResponse(group_id=committer.group, topics=None)
        while True:
            answer = client.ask(OffsetFetchRequest(groups=[row], require_stable=False), 8).groups[0]
            if answer.error_code not in _TRY_AGAIN:
                break
    assert answer.error_code == KafkaCode.NONE
    found = {
        one.partition_index: one.committed_offset
        for topic in answer.topics
        for one in topic.partitions
    }
    bad = []
    for partition, promised in committer.committed.acknowledged.items():
        now = found.get(partition, -1)
        if not promised <= now <= committer.committed.sent[partition]:
            bad.append(
                f"{committer.group}-{partition}: {promised} was acknowledged, {now} is there"
            )
    return bad


def group_kill_rounds(data_dir: Path, seeds: list[int]) -> Iterator[Round]:
    node = MillstreamNode(
        data_dir,
        *("--set", "offsets.topic.num.partitions=4", "--set", "group.min.session.timeout.ms=1000"),
    )
    with contextlib.ExitStack() as stack:
        node.start()
        stack.callback(lambda: node.kill())
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
            created.result(20)
        crowds = {
            kind: stack.enter_context(Crowd(node.bootstrap, f"crowd-{kind}", TOPIC, PARTITIONS))
            for kind in KINDS
        }
        for kind, crowd in crowds.items():
            crowd.start(kind, 2)
        for crowd in crowds.values():
            crowd.wait_until_shared()
        for seed in seeds:
            yield _round(node, crowds, seed)


def _round(node: MillstreamNode, crowds: dict[str, Crowd], seed: int) -> Round:
    chance = random.Random(seed)
    committers = [
        Committer(
            node.bootstrap,
            f"{'members' if number % 2 else 'alone'}-{seed}-{number}",
            is_member=number % 2 == 1,
        )
        for number in range(6)
    ]
    _wait_until_committed(committers, ACKNOWLEDGED_PER_ROUND_MIN)
    # Members that come: the kill falls somewhere into the rebalances.
    joining = [(crowd, crowd.start(kind, 1)) for kind, crowd in crowds.items()]
    time.sleep(chance.random())
    pid = node.pid
    node.kill()
    node.start()
    reached = sum(committer.committed.count for committer in committers)
    _wait_until_committed(committers, reached + PIPELINED)
    for committer in committers:
        committer.stop()
    bad = [each for committer in committers for each in problems(node.bootstrap, committer)]
    for crowd, process in joining:
        crowd.wait_until_shared()
        process.stop()
        crowd.processes.remove(process)
    for crowd in crowds.values():
        crowd.wait_until_shared()
        bad += crowd.ledger.overlaps()
    return Round(
        seed=seed,
        acknowledged=sum(committer.committed.count for committer in committers),
        fault=f"SIGKILL of {pid} while members joined",
        problems=bad,
    )


def _wait_until_committed(committers: list[Committer], count: int) -> None:
    end = time.monotonic() + 60
    while sum(committer.committed.count for committer in committers) < count:
        assert time.monotonic() < end, "commits are not acknowledged"
        time.sleep(0.005)
