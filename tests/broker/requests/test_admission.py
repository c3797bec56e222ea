"""A rule is added in one place, and every route obeys it at once, on live connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.network.receiving import COMPILED
from millstream.broker.network.replies import Shortcut
from millstream.broker.security.authorizer import ClientConnection
from millstream.errors import KafkaCode, KafkaError
from millstream.model import OFFSETS_TOPIC, Principal
from millstream.records.batch import BatchView
from millstream.replication.admission import Generation
from millstream.replication.partition import Partition
from millstream.security.acl import Operation, ResourceType
from millstream.security.authorization import Client
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.replication.nodes import Cluster, cluster_of
from tests.replication.test_partition import open_partition
from tests.replication.writing import Asker, admissions_of, produce
from tests.storage.batch_groups import GroupOf
from tests.storage.logs import batch, make_log_config
from tests.support.open_node import OpenNode
from tests.support.raw_client import RawClient

DENIED = KafkaCode.TOPIC_AUTHORIZATION_FAILED
# Requests of a connection before it has a shortcut for the next.
BEFORE_SHORTCUT = 2
TOGETHER = 4
SENT_LATE_MS = 10_000


@dataclass
class Deny:
    """Only what is named is refused."""

    resource_type: ResourceType = ResourceType.TOPIC
    name: str | None = "t"

    names_hosts = False

    def client_of(self, connection: ClientConnection) -> Client:
        return Client(connection.principal)

    def is_allowed(
        self, client: Client, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        return resource_type is not self.resource_type or self.name not in (None, name)

    def is_allowed_on_any(
        self, client: Client, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True


# -- routes: each uses connections of its own and gives the code of its next answer ----------

Route = Callable[[], KafkaCode]


def send_produce(client: RawClient, acks: int, value: bytes = b"v", batches: int = 1) -> None:
    data = batch(1, value=value, timestamp_ms=int(time.time() * 1000) - SENT_LATE_MS)
    partitions = [ProducePartitionData(index=0, records=bytes(data)) for _ in range(batches)]
    client.send(
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[ProduceTopicData(name="t", partition_data=partitions)],
        ),
        11,
    )


def produced(client: RawClient) -> KafkaCode:
    answer = client.receive(ProduceRequest, 11)
    [code] = {each.error_code for each in answer.responses[0].partition_responses}
    return KafkaCode(code)


def produce_once(bootstrap: str, value: bytes = b"v") -> KafkaCode:
    """The general route: the first request of a connection."""
    with RawClient(bootstrap) as client:
        send_produce(client, 1, value)
        return produced(client)


def produce_again(client: RawClient, acks: int, value: bytes = b"v") -> KafkaCode:
    send_produce(client, acks, value)
    return produced(client)


def produce_several(client: RawClient) -> KafkaCode:
    send_produce(client, -1, batches=2)
    return produced(client)


def produce_together(clients: list[RawClient]) -> KafkaCode:
    for client in clients:
        send_produce(client, 1)
    [code] = {produced(client) for client in clients}
    return code


def fetch(client: RawClient, *, wait_ms: int = 0, offset: int = 0) -> KafkaCode:
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    answer = client.ask(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", partitions=[asked])],
            forgotten_topics_data=[],
            rack_id="",
        ),
        12,
    )
    return KafkaCode(answer.responses[0].partitions[0].error_code)


def fetch_once(bootstrap: str) -> KafkaCode:
    with RawClient(bootstrap) as client:
        return fetch(client)


class SessionFetch:
    """A consumer with a session, which is at the end of the log and knows it."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self._id = self._epoch = 0
        self._offset = 0

    def fetch(self) -> KafkaCode:
        """What it gets without naming the partition again; then it goes to the end."""
        code, _ = self._ask(names_partition=self._id == 0)
        if code == KafkaCode.NONE:
            end = -1
            while self._offset != end:
                end = self._offset
                _, self._offset = self._ask(names_partition=True)
        return code

    def _ask(self, *, names_partition: bool) -> tuple[KafkaCode, int]:
        """The error of the partition, and its end if the answer has one."""
        asked = FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=self._offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1 << 20,
        )
        answer = self.client.ask(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=self._id,
                session_epoch=self._epoch,
                topics=[FetchTopic(topic="t", partitions=[asked])] if names_partition else [],
                forgotten_topics_data=[],
                rack_id="",
            ),
            12,
        )
        assert answer.error_code == KafkaCode.NONE
        self._id, self._epoch = answer.session_id, self._epoch + 1
        if not answer.responses:
            return KafkaCode.NONE, self._offset
        found = answer.responses[0].partitions[0]
        return KafkaCode(found.error_code), max(found.high_watermark, self._offset)


def commit(client: RawClient, group: str) -> KafkaCode:
    one = OffsetCommitPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    answer = client.ask(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[OffsetCommitTopic(name="t", partitions=[one])],
        ),
        8,
    )
    return KafkaCode(answer.topics[0].partitions[0].error_code)


def commit_once(bootstrap: str) -> KafkaCode:
    with RawClient(bootstrap) as client:
        return commit(client, "once")


class Routes:
    """Live connections to one node, one for each way that a request can take."""

    def __init__(self, cluster: Cluster, node: OpenNode) -> None:
        self.cluster = cluster
        self.node = node
        self.bootstrap = f"127.0.0.1:{node.port}"
        self.again, self.committed, self.fetching, self.committing = self._connect(4)
        self.several, session_client = self._connect(2)
        self.session = SessionFetch(session_client)
        self.together = self._connect(TOGETHER)
        self.produces: dict[str, Route] = {
            "general": lambda: produce_once(self.bootstrap),
            "repeated": lambda: produce_again(self.again, 1),
            "repeated, acks all": lambda: produce_again(self.committed, -1),
            "repeated, several batches": lambda: produce_several(self.several),
            "compiled group": lambda: produce_together(self.together),
        }
        self.fetches: dict[str, Route] = {
            "fetch": lambda: fetch_once(self.bootstrap),
            "repeated fetch": lambda: fetch(self.fetching),
            "fetch of a session": self.session.fetch,
        }
        self.commits: dict[str, Route] = {
            "commit": lambda: commit_once(self.bootstrap),
            "repeated commit": lambda: commit(self.committing, "again"),
        }

    def _connect(self, count: int) -> list[RawClient]:
        return [RawClient(self.bootstrap) for _ in range(count)]

    def close(self) -> None:
        for client in [
            *(self.again, self.committed, self.fetching, self.committing),
            *(self.several, self.session.client),
            *self.together,
        ]:
            client.sock.close()

    @property
    def all(self) -> dict[str, Route]:
        return self.produces | self.fetches | self.commits

    async def expect(self, code: KafkaCode, routes: dict[str, Route]) -> None:
        answers = {name: await asyncio.to_thread(route) for name, route in routes.items()}
        assert answers == dict.fromkeys(routes, code)

    async def settle(self) -> None:
        """Until every connection that can have a shortcut has one."""
        for _ in range(BEFORE_SHORTCUT + 1):
            await self.expect(KafkaCode.NONE, self.all)
        assert len(self.shortcuts) == 5 + TOGETHER

    @property
    def shortcuts(self) -> list[Shortcut]:
        """Those that are current."""
        found = [connection.shortcut for connection in self.node._server.connections]
        current = self.node.partitions.generation.number
        return [one for one in found if one is not None and one.generation == current]


@asynccontextmanager
async def live_routes(folder: Path) -> AsyncIterator[Routes]:
    settings = {"min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(cluster_of(folder, 1, settings))
        await cluster.create(replicas=1)
        node = await cluster.led()
        await node.coordinators.ensure_topic()
        for index in range(3):
            await cluster.led(OFFSETS_TOPIC, index)
        routes = Routes(cluster, node)
        stack.callback(routes.close)
        await routes.settle()
        yield routes


def scenario(folder: Path, play: Callable[[Routes], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with live_routes(folder) as routes:
            await play(routes)

    asyncio.run(run())


def test_a_new_rule_holds_on_every_route_and_ends_on_every_route(tmp_path: Path) -> None:
    async def play(routes: Routes) -> None:
        routes.node.permissions.use(Deny())
        await routes.expect(DENIED, routes.all)
        # Connections that have learned their shortcuts under the rule obey it, too.
        await routes.expect(DENIED, routes.all)
        await routes.expect(DENIED, routes.all)
        routes.node.permissions.use(Deny(name="another topic"))
        await routes.settle()
        routes.node.permissions.use(Deny(ResourceType.GROUP, None))
        await routes.expect(KafkaCode.GROUP_AUTHORIZATION_FAILED, routes.commits)
        await routes.expect(KafkaCode.NONE, routes.produces | routes.fetches)

    scenario(tmp_path, play)


@pytest.mark.parametrize("fetches_before", [0, BEFORE_SHORTCUT])
def test_a_fetch_that_waits_is_held_to_a_rule_that_is_newer(
    tmp_path: Path, fetches_before: int
) -> None:
    async def play(routes: Routes) -> None:
        for _ in range(fetches_before):
            code = await asyncio.to_thread(fetch, routes.fetching, wait_ms=60_000)
            assert code is KafkaCode.NONE
        end = routes.cluster.replica(routes.node.node_id).log.next_offset
        waiting = asyncio.create_task(
            asyncio.to_thread(fetch, routes.fetching, wait_ms=60_000, offset=end)
        )
        found = routes.node.partitions.get("t", 0)
        while not found.fetch_waits.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        routes.node.permissions.use(Deny())
        found.fetch_waits.wake()
        assert await waiting is DENIED

    scenario(tmp_path, play)


def test_a_change_of_role_holds_on_every_route(tmp_path: Path) -> None:
    async def play(routes: Routes) -> None:
        replica = routes.cluster.replica(routes.node.node_id)
        role = replica.role
        replica.stand_by()
        moved = KafkaCode.NOT_LEADER_OR_FOLLOWER
        await routes.expect(moved, routes.produces | routes.fetches)
        replica.apply(role, now_ms=0)
        await routes.settle()
        # And a rule that comes after it.
        routes.node.permissions.use(Deny())
        await routes.expect(DENIED, routes.all)

    scenario(tmp_path, play)


def test_a_disk_that_is_offline_is_known_on_every_route(tmp_path: Path) -> None:
    async def play(routes: Routes) -> None:
        routes.cluster.replica(routes.node.node_id).go_offline("gone")
        await routes.expect(KafkaCode.KAFKA_STORAGE_ERROR, routes.produces | routes.fetches)

    scenario(tmp_path, play)


def test_a_coordinator_whose_disk_is_offline_takes_no_repeated_commit(tmp_path: Path) -> None:
    async def play(routes: Routes) -> None:
        for index in range(3):
            routes.node.partitions.get(OFFSETS_TOPIC, index).go_offline("gone")
        repeated = {"repeated commit": routes.commits["repeated commit"]}
        await routes.expect(KafkaCode.NOT_COORDINATOR, repeated)

    scenario(tmp_path, play)


def test_a_change_of_options_holds_on_every_route(tmp_path: Path) -> None:
    async def play(routes: Routes) -> None:
        await asyncio.to_thread(configure, routes, "max.message.bytes", "10")
        await routes.expect(KafkaCode.MESSAGE_TOO_LARGE, routes.produces)
        await asyncio.to_thread(configure, routes, "max.message.bytes", "100000")
        await routes.settle()
        await asyncio.to_thread(configure, routes, "message.timestamp.before.max.ms", "100")
        await routes.expect(KafkaCode.INVALID_TIMESTAMP, routes.produces)
        await asyncio.to_thread(configure, routes, "cleanup.policy", "compact")
        await asyncio.to_thread(configure, routes, "message.timestamp.type", "LogAppendTime")
        # A compacted topic wants keys.
        await routes.expect(KafkaCode.INVALID_RECORD, routes.produces)
        routes.node.permissions.use(Deny())
        await routes.expect(DENIED, routes.all)

    scenario(tmp_path, play)


def configure(routes: Routes, name: str, value: str) -> None:
    with RawClient(routes.bootstrap) as client:
        client.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=2,
                        resource_name="t",
                        configs=[
                            IncrementallyAlterableConfig(name=name, config_operation=0, value=value)
                        ],
                    )
                ],
                validate_only=False,
            ),
            1,
        )


@pytest.mark.skipif(COMPILED is None, reason="millstream.broker.network._receiving is not compiled")
def test_groups_are_appended_as_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That what is tested above as a compiled group is one."""
    sizes: list[int] = []
    append = Partition.append

    def counted(partition: Partition, batches: object, *rest: object, **named: object) -> object:
        sizes.append(1 if isinstance(batches, BatchView) else -len(batches))  # type: ignore[arg-type]
        return append(partition, batches, *rest, **named)  # type: ignore[arg-type]

    async def play(routes: Routes) -> None:
        monkeypatch.setattr(Partition, "append", counted)
        await routes.expect(KafkaCode.NONE, routes.produces)
        assert sum(size for size in sizes if size < 0) == -TOGETHER - 1
        # The first request of a connection, one with acks all, and two batches of one request.
        assert [size for size in sizes if size > 0] == [1] * 4

    scenario(tmp_path, play)


# -- the decision itself ---------------------------------------------------------------------


def test_an_admission_is_kept_until_something_changes() -> None:
    partition = open_partition()
    admissions = admissions_of(partition._generation)
    first = admissions.of(Asker(), partition)
    assert admissions.of(Asker(), partition) is first
    assert admissions.of(Asker(Principal("User:other")), partition) is first
    partition.update_config(make_log_config(max_message_bytes=7))
    second = admissions.of(Asker(), partition)
    assert second.generation > first.generation
    terms = second.write_terms(is_acks_all=False, is_transactional=False)
    assert terms.rules.message_bytes_max == 7


def test_an_outdated_admission_is_not_appended_under() -> None:
    partition = open_partition()
    admission = admissions_of(partition._generation).of(Asker(), partition)
    terms = admission.write_terms(is_acks_all=False, is_transactional=False)
    partition.go_offline("gone")
    with pytest.raises(AssertionError):
        partition.append(GroupOf(batch()), terms, now_ms=0)
    assert partition.log.next_offset == 0


def test_internal_topics_are_for_coordinators_only() -> None:
    partition = open_partition(topic=OFFSETS_TOPIC)
    for is_acks_all in (False, True):
        with pytest.raises(KafkaError) as refused:
            produce(partition, batch(), is_acks_all=is_acks_all)
        assert refused.value.code is KafkaCode.INVALID_TOPIC_EXCEPTION
    assert admissions_of(Generation()).of(Asker(), partition).read is None


def test_only_a_verified_transaction_may_write_transactional_batches() -> None:
    partition = open_partition()
    admission = admissions_of(partition._generation).of(Asker(), partition)
    for is_acks_all in (False, True):
        for is_transactional in (False, True):
            terms = admission.write_terms(
                is_acks_all=is_acks_all, is_transactional=is_transactional
            )
            assert terms.rules.is_transactional_allowed is is_transactional
            assert terms.answers_at_once is not is_acks_all


def test_an_answer_waits_where_unsynced_records_are_counted() -> None:
    partition = open_partition(make_log_config(flush_messages=100))
    admission = admissions_of(partition._generation).of(Asker(), partition)
    terms = admission.write_terms(is_acks_all=False, is_transactional=False)
    assert not terms.answers_at_once
