"""Transactions over a real socket, by raw frames: what is late, what is old, what is lost."""

import asyncio
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.coordination import creation_quota, transactions
from millstream.broker.coordination.shards import PartitionPort
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.requests.turns import Turns
from millstream.config import load_config
from millstream.coordinators.codecs.transactions import (
    TransactionChange,
    TransactionStatus,
    decode,
)
from millstream.coordinators.decision import ProducerEpoch
from millstream.coordinators.journal import ShardStatus
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.commit_group import CommitGroupMember, CommitGroupRequest
from millstream.wire.apis.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from millstream.wire.apis.describe_transactions import DescribeTransactionsRequest
from millstream.wire.apis.last_batch import LastBatchRequest
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.list_transactions import ListTransactionsRequest
from millstream.wire.apis.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.wire.message import Message
from tests.broker.coordination.transactional import (
    RawProducer,
    fetch,
    find_coordinator,
    values_read,
)
from tests.support.broker import Broker
from tests.support.open_node import OpenNode
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def new(client: RawClient, topic: str) -> RawProducer:
    producer = RawProducer(client, f"id-{topic}", topic, is_new=True)
    producer.take_over()
    return producer


@pytest.fixture
def old(client: RawClient, topic: str) -> RawProducer:
    producer = RawProducer(client, f"id-{topic}", topic, is_new=False)
    producer.take_over()
    return producer


NONE = KafkaCode.NONE


def committed_offset(client: RawClient, group: str, topic: str, *, stable: bool = False) -> Any:
    find_coordinator(client, group, 0)
    answer = client.ask(
        OffsetFetchRequest(
            groups=[
                OffsetFetchGroup(
                    group_id=group, topics=[OffsetFetchTopic(name=topic, partition_indexes=[0])]
                ),
            ],
            require_stable=stable,
        ),
        8,
    )
    found = answer.groups[0].topics[0].partitions[0]
    assert isinstance(found, Message)
    return found


LATEST, MAX_TIMESTAMP = -1, -3


def list_offset(client: RawClient, topic: str, timestamp: int, *, committed: bool) -> int:
    answer = client.ask(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=-1, timestamp=timestamp
                        ),
                    ],
                )
            ],
        ),
        7,
    )
    return int(answer.topics[0].partitions[0].offset)


def end_offset(client: RawClient, topic: str, *, committed: bool) -> int:
    return list_offset(client, topic, LATEST, committed=committed)


def test_the_ends_that_list_offsets_and_fetch_tell_depend_on_the_isolation(
    client: RawClient, new: RawProducer
) -> None:
    assert new.produce(b"a", b"b") is NONE
    assert end_offset(client, new.topic, committed=False) == 2
    assert end_offset(client, new.topic, committed=True) == 0
    result = fetch(client, new.topic)
    assert (result.high_watermark, result.last_stable_offset) == (2, 0)
    assert not result.records
    assert new.end() is NONE
    assert end_offset(client, new.topic, committed=True) == 3
    assert values_read(client, new.topic) == [b"a", b"b"]


def test_a_record_above_the_last_stable_offset_is_not_the_newest_of_read_committed(
    client: RawClient, new: RawProducer
) -> None:
    assert new.produce(b"a") is NONE
    assert list_offset(client, new.topic, MAX_TIMESTAMP, committed=False) == 0
    assert list_offset(client, new.topic, MAX_TIMESTAMP, committed=True) == -1
    assert new.end() is NONE
    assert list_offset(client, new.topic, MAX_TIMESTAMP, committed=True) >= 0


def test_each_transaction_of_a_new_client_has_its_own_epoch(new: RawProducer) -> None:
    for epoch in range(3):
        assert new.epoch == epoch
        assert new.produce(b"x") is NONE
        assert new.end(commit=epoch % 2 == 0) is NONE


def test_an_abort_without_any_write_gives_a_new_epoch_too(new: RawProducer) -> None:
    assert new.end(commit=False) is NONE
    assert new.epoch == 1
    assert new.produce(b"x") is NONE
    assert new.end() is NONE


def test_late_requests_of_a_new_client_never_touch_the_next_transaction(
    client: RawClient, new: RawProducer
) -> None:
    rounds = 1_000
    for number in range(rounds):
        late_epoch = new.epoch
        assert new.produce(b"first %d" % number) is NONE
        assert new.end() is NONE
        assert new.produce(b"second %d" % number) is NONE
        # The requests that were held back: a write to a partition that the next transaction
        # has, one to a partition that it has not, and both ends.
        late = {"epoch": late_epoch, "sequence": 1}
        assert new.produce(b"late", **late) is KafkaCode.INVALID_PRODUCER_EPOCH
        late["sequence"] = 0
        assert new.produce(b"late", partition=1, **late) is KafkaCode.INVALID_PRODUCER_EPOCH
        assert new.end(commit=number % 2 == 0, epoch=late_epoch) is KafkaCode.PRODUCER_FENCED
        assert new.end() is NONE
        assert new.end(epoch=late_epoch) is KafkaCode.PRODUCER_FENCED
    expected = [b"%s %d" % (word, n) for n in range(rounds) for word in (b"first", b"second")]
    assert values_read(client, new.topic) == expected
    assert fetch(client, new.topic, partition=1).high_watermark == 0


def test_a_late_write_of_an_old_client_to_another_partition_is_refused(
    client: RawClient, old: RawProducer
) -> None:
    for number in range(1_000):
        assert old.add(0) is NONE
        assert old.produce(b"%d" % number) is NONE
        code = old.produce(b"late", partition=1, sequence=0, version=9 + number % 3)
        # Produce 11 knows a better word for it.
        better = KafkaCode.TRANSACTION_ABORTABLE if number % 3 == 2 else None
        assert code is (better or KafkaCode.INVALID_TXN_STATE)
        assert old.end() is NONE
        assert old.produce(b"late", sequence=old.sequence) in (
            KafkaCode.INVALID_TXN_STATE,
            KafkaCode.TRANSACTION_ABORTABLE,
        )
    assert values_read(client, old.topic) == [b"%d" % number for number in range(1_000)]
    for partition in (0, 1):
        result = fetch(client, old.topic, partition=partition)
        assert result.last_stable_offset == result.high_watermark, "a transaction hangs"


def test_a_transactional_batch_without_a_transactional_id_is_refused(
    client: RawClient, new: RawProducer
) -> None:
    answer = client.ask(
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    name=new.topic,
                    partition_data=[
                        ProducePartitionData(index=0, records=new.batch(b"x", sequence=0))
                    ],
                )
            ],
        ),
        11,
    )
    code = answer.responses[0].partition_responses[0].error_code
    assert code == KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert fetch(client, new.topic).high_watermark == 0


def test_a_client_may_write_as_a_new_one_and_end_as_an_old_one(
    client: RawClient, new: RawProducer
) -> None:
    for number in range(3):
        assert new.produce(b"%d" % number) is NONE
        new.is_new = False
        assert new.end() is NONE
        new.is_new = True
    assert new.epoch == 0
    assert values_read(client, new.topic) == [b"0", b"1", b"2"]


def test_the_first_write_of_a_new_client_begins_to_count(new: RawProducer) -> None:
    assert new.produce(b"x", sequence=7) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert new.produce(b"x") is NONE
    assert new.end() is NONE


@pytest.mark.parametrize("is_new", [True, False])
def test_the_older_producer_is_fenced_on_data_offsets_and_end(
    client: RawClient, topic: str, is_new: bool
) -> None:
    older = RawProducer(client, f"id-{topic}", topic, is_new=is_new)
    older.take_over()
    find_coordinator(client, "some-group", 0)
    if not is_new:
        assert older.add() is NONE
    assert older.produce(b"lost") is NONE
    newer = RawProducer(client, f"id-{topic}", topic, is_new=is_new)
    newer.take_over()
    assert older.produce(b"lost too") is KafkaCode.INVALID_PRODUCER_EPOCH
    assert older.produce(b"lost", partition=1) is KafkaCode.INVALID_PRODUCER_EPOCH
    assert older.commit_offset("some-group", 5) is KafkaCode.INVALID_PRODUCER_EPOCH
    assert older.end() is KafkaCode.PRODUCER_FENCED
    assert older.init(resume=True) is KafkaCode.PRODUCER_FENCED
    if not is_new:
        assert newer.add() is NONE
    assert newer.produce(b"kept") is NONE
    assert newer.end() is NONE
    assert values_read(client, topic) == [b"kept"]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_in_a_transaction_wait_for_its_end(
    client: RawClient, new: RawProducer, commit: bool
) -> None:
    group = f"group-{new.topic}"
    find_coordinator(client, group, 0)
    assert new.commit_offset(group, 42) is NONE
    assert committed_offset(client, group, new.topic).committed_offset == -1
    unstable = committed_offset(client, group, new.topic, stable=True)
    assert unstable.error_code == KafkaCode.UNSTABLE_OFFSET_COMMIT
    assert new.end(commit=commit) is NONE
    found = committed_offset(client, group, new.topic, stable=True)
    assert found.error_code == NONE
    assert found.committed_offset == (42 if commit else -1)


def test_offsets_of_an_old_client_need_the_group_in_the_transaction(
    client: RawClient, old: RawProducer
) -> None:
    group = f"group-{old.topic}"
    find_coordinator(client, group, 0)
    assert old.commit_offset(group, 1) is KafkaCode.INVALID_TXN_STATE
    assert _add_offsets(old, group) == NONE
    assert old.commit_offset(group, 1) is NONE
    assert old.end() is NONE
    assert committed_offset(client, group, old.topic).committed_offset == 1


def test_offsets_of_a_transaction_that_ends_while_they_are_read_are_refused(
    broker: Broker, client: RawClient, old: RawProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    is_read, is_ended = threading.Event(), threading.Event()
    next_turn = Turns._next_turn

    async def hold(self: Turns, request: Any, *work: Any) -> Any:
        nonlocal turns
        if request.header.api_key == TxnOffsetCommitRequest.api.key:
            turns += 1
            if turns == 2:
                is_read.set()
                await asyncio.get_running_loop().run_in_executor(None, is_ended.wait, 60)
        return await next_turn(self, request, *work)

    group = f"group-{old.topic}"
    find_coordinator(client, group, 0)
    assert _add_offsets(old, group) == NONE
    assert old.commit_offset(group, 1) is NONE
    monkeypatch.setattr(Turns, "_next_turn", hold)
    monkeypatch.setattr("millstream.broker.requests.turns.FIRST_TURN_SECONDS_MAX", -1)
    with RawClient(broker.bootstrap) as other:
        late = replace(old, client=other)
        codes: list[KafkaCode] = []
        sending = threading.Thread(target=lambda: codes.append(late.commit_offset(group, 2)))
        sending.start()
        assert is_read.wait(60)
        assert old.end() is NONE
        is_ended.set()
        sending.join()
    assert codes == [KafkaCode.INVALID_TXN_STATE]
    found = committed_offset(client, group, old.topic, stable=True)
    assert (found.error_code, found.committed_offset) == (NONE, 1)


def _add_offsets(producer: RawProducer, group: str) -> int:
    answer = producer.client.ask(
        AddOffsetsToTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group,
        ),
        0,
    )
    return int(answer.error_code)


def test_a_transaction_that_takes_too_long_is_aborted(client: RawClient, topic: str) -> None:
    producer = RawProducer(client, f"id-{topic}", topic)
    producer.take_over()
    assert producer.init(timeout_ms=50) is NONE
    assert producer.produce(b"slow") is NONE
    wait_until(
        lambda: fetch(client, topic).last_stable_offset == 2, "the marker is there", seconds_max=10
    )
    assert values_read(client, topic) == []
    assert producer.produce(b"slower") is KafkaCode.INVALID_PRODUCER_EPOCH


def test_unknown_partitions_are_refused_and_the_others_not_tried(
    client: RawClient, old: RawProducer
) -> None:
    answer = client.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=old.transactional_id,
            v3_and_below_producer_id=old.producer_id,
            v3_and_below_producer_epoch=old.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=old.topic, partitions=[0, 9])],
        ),
        3,
    )
    [topic] = answer.results_by_topic_v3_and_below
    assert [one.partition_error_code for one in topic.results_by_partition] == [
        KafkaCode.OPERATION_NOT_ATTEMPTED,
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_request_without_partitions_begins_no_transaction(
    client: RawClient, old: RawProducer
) -> None:
    """Permissions are told by partition: it would not even be known whether it may."""
    for topics in ([], [AddPartitionsToTxnTopic(name=old.topic, partitions=[])]):
        answer = client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=old.transactional_id,
                v3_and_below_producer_id=old.producer_id,
                v3_and_below_producer_epoch=old.epoch,
                v3_and_below_topics=topics,
            ),
            0,
        )
        assert [one.name for one in answer.results_by_topic_v3_and_below] == [
            one.name for one in topics
        ]
    wanted = DescribeTransactionsRequest(transactional_ids=[old.transactional_id])
    assert client.ask(wanted, 0).transaction_states[0].transaction_state == "Empty"


@pytest.mark.parametrize("partitions", [None, [], [9]], ids=["none", "empty", "unknown"])
def test_offsets_of_no_partition_that_exists_begin_no_transaction(
    client: RawClient, new: RawProducer, partitions: list[int] | None
) -> None:
    group = f"group-{new.topic}"
    find_coordinator(client, group, 0)
    rows = [
        TxnOffsetCommitPartition(
            partition_index=index,
            committed_offset=1,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        for index in partitions or ()
    ]
    topics = [] if partitions is None else [TxnOffsetCommitTopic(name=new.topic, partitions=rows)]
    answer = client.ask(
        TxnOffsetCommitRequest(
            transactional_id=new.transactional_id,
            group_id=group,
            producer_id=new.producer_id,
            producer_epoch=new.epoch,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=topics,
        ),
        5,
    )
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert codes == [KafkaCode.UNKNOWN_TOPIC_OR_PARTITION] * len(rows)
    assert len(answer.topics) == len(topics)
    wanted = DescribeTransactionsRequest(transactional_ids=[new.transactional_id])
    assert client.ask(wanted, 0).transaction_states[0].transaction_state == "Empty"


def test_nodes_add_and_verify_many_at_once(client: RawClient, old: RawProducer) -> None:
    def ask(verify_only: bool) -> list[int]:
        answer = client.ask(
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=old.transactional_id,
                        producer_id=old.producer_id,
                        producer_epoch=old.epoch,
                        verify_only=verify_only,
                        topics=[AddPartitionsToTxnTopic(name=old.topic, partitions=[0])],
                    )
                ]
            ),
            5,
        )
        [one] = answer.results_by_transaction
        [topic] = one.topic_results
        return [result.partition_error_code for result in topic.results_by_partition]

    assert ask(verify_only=True) == [KafkaCode.TRANSACTION_ABORTABLE]
    assert ask(verify_only=False) == [NONE]
    assert ask(verify_only=True) == [NONE]


def test_a_hanging_transaction_is_ended_by_a_marker_from_outside(
    client: RawClient, old: RawProducer
) -> None:
    assert old.add() is NONE
    assert old.produce(b"x") is NONE
    found = client.ask(
        DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=old.topic, partition_indexes=[0])]
        ),
        0,
    )
    [producer] = found.topics[0].partitions[0].active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (old.producer_id, 0)
    answer = client.ask(
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transaction_result=False,
                    topics=[WritableTxnMarkerTopic(name=old.topic, partition_indexes=[0, 9])],
                    coordinator_epoch=producer.coordinator_epoch,
                )
            ]
        ),
        1,
    )
    codes = [one.error_code for one in answer.markers[0].topics[0].partitions]
    assert codes == [NONE, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert end_offset(client, old.topic, committed=True) == 2


def test_transactions_are_listed_and_described(client: RawClient, new: RawProducer) -> None:
    assert new.produce(b"x") is NONE

    def listed(**filters: object) -> dict[str, str]:
        wanted = {
            "state_filters": [],
            "producer_id_filters": [new.producer_id],
            "duration_filter": -1,
            "transactional_id_pattern": None,
            **filters,
        }
        answer = client.ask(ListTransactionsRequest(**wanted), 2)
        return {one.transactional_id: one.transaction_state for one in answer.transaction_states}

    name = new.transactional_id
    assert listed() == {name: "Ongoing"}
    assert listed(state_filters=["Ongoing"]) == {name: "Ongoing"}
    assert listed(state_filters=["CompleteCommit"]) == {}
    assert listed(duration_filter=600_000) == {}
    assert listed(transactional_id_pattern="id-.*") == {name: "Ongoing"}
    assert listed(transactional_id_pattern="other") == {}
    answer = client.ask(DescribeTransactionsRequest(transactional_ids=[name, "nobody"]), 0)
    known, unknown = answer.transaction_states
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert [(one.topic, one.partitions) for one in known.topics] == [(new.topic, [0])]
    assert unknown.error_code == KafkaCode.TRANSACTIONAL_ID_NOT_FOUND
    assert new.end() is NONE


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_was_not_carried_out_is_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    with monkeypatch.context() as patched:
        # As if the node had died right after the decision was in the log.
        patched.setattr(TransactionCoordinator, "_write_markers", lambda *arguments: None)
        with (
            Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 1}) as broker,
            RawClient(broker.bootstrap) as client,
        ):
            producer = RawProducer(client, "mill", "t")
            producer.take_over()
            find_coordinator(client, "readers", 0)
            assert producer.produce(b"x") is NONE
            assert producer.commit_offset("readers", 3) is NONE
            client.send(producer.end_request(commit=commit), 5)
            wait_until(lambda: _is_prepared(broker.bootstrap), "the end is decided")
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        wait_until(lambda: fetch(client, "t").last_stable_offset == 2, "the marker is there")
        assert values_read(client, "t") == ([b"x"] if commit else [])
        found = committed_offset(client, "readers", "t", stable=True)
        assert found.committed_offset == (3 if commit else -1)


def test_a_partition_that_is_offline_gets_its_marker_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TransactionCoordinator, "_write_markers", lambda *arguments: None)
        with (
            Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 2}) as broker,
            RawClient(broker.bootstrap) as client,
        ):
            producer = RawProducer(client, "mill", "t")
            producer.take_over()
            assert producer.produce(b"x") is NONE
            assert producer.produce(b"y", partition=1, sequence=0) is NONE
            assert fetch(client, "t").high_watermark == 1
            client.send(producer.end_request(), 5)
            wait_until(lambda: _is_prepared(broker.bootstrap), "the end is decided")
    [log_file] = (tmp_path / "t-0").glob("*.log")
    aside = log_file.rename(tmp_path / "aside")
    # As a directory it cannot be opened.
    log_file.mkdir()
    with Broker(settings=SETTINGS, data_dir=tmp_path) as broker:
        with RawClient(broker.bootstrap) as client:
            find_coordinator(client, "mill", 1)
            wait_until(lambda: values_read(client, "t", partition=1) == [b"y"], "the other's")
        wait_until(lambda: "no marker yet for t-0" in caplog.text, "its marker is tried")
        assert _is_prepared(broker.bootstrap), "its transaction is not over"
    log_file.rmdir()
    aside.rename(log_file)
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        find_coordinator(client, "mill", 1)
        wait_until(lambda: values_read(client, "t") == [b"x"], "the marker is there")


def _is_prepared(bootstrap: str) -> bool:
    with RawClient(bootstrap) as client:
        answer = client.ask(DescribeTransactionsRequest(transactional_ids=["mill"]), 0)
        return bool(answer.transaction_states[0].transaction_state.startswith("Prepare"))


def test_an_open_transaction_goes_on_after_a_restart(tmp_path: Path) -> None:
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 1}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        producer = RawProducer(client, "mill", "t")
        producer.take_over()
        assert producer.produce(b"before") is NONE
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        producer.client = client
        assert fetch(client, "t").last_stable_offset == 0
        assert producer.produce(b"after") is NONE
        assert producer.end() is NONE
        assert values_read(client, "t") == [b"before", b"after"]


def test_a_partition_that_cannot_take_its_marker_does_not_hold_back_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise KafkaError(KafkaCode.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr("millstream.broker.coordination.transactions.MARKER_RETRY_SECONDS", 0.01)
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 1}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        producer = RawProducer(client, "mill", "t")
        producer.take_over()
        assert producer.produce(b"x") is NONE
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "append_marker", full)
            assert producer.end() is NONE
            assert producer.produce(b"y") is KafkaCode.CONCURRENT_TRANSACTIONS
            assert values_read(client, "t") == []
        wait_until(lambda: values_read(client, "t") == [b"x"], "the marker is written after all")
        wait_until(lambda: producer.produce(b"y") is NONE, "the transaction is complete")


def test_a_transaction_that_cannot_be_completed_for_want_of_replicas_is_completed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = PartitionPort.append

    def refuse_completion(self: PartitionPort, records: Any, transaction: Any) -> int:
        changes = [decode(key, value) for key, value in records]
        values = [each.value for each in changes if isinstance(each, TransactionChange)]
        if any(each and each.status is TransactionStatus.COMPLETE_COMMIT for each in values):
            raise KafkaError(KafkaCode.NOT_ENOUGH_REPLICAS)
        return append(self, records, transaction)

    monkeypatch.setattr("millstream.broker.coordination.transactions.MARKER_RETRY_SECONDS", 0.01)
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 1}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        producer = RawProducer(client, "mill", "t")
        producer.take_over()
        assert producer.produce(b"x") is NONE
        with monkeypatch.context() as patched:
            patched.setattr(PartitionPort, "append", refuse_completion)
            assert producer.end() is NONE
            assert producer.produce(b"y") is KafkaCode.CONCURRENT_TRANSACTIONS
        wait_until(lambda: producer.produce(b"y") is NONE, "the transaction is complete")


def test_names_that_no_record_can_hold_are_not_read(broker: Broker, topic: str) -> None:
    for ask in (
        lambda client: RawProducer(client, "x" * 40_000, topic).init(),
        lambda client: commit_group(client, "g" * 40_000, 1, []),
    ):
        with RawClient(broker.bootstrap) as leaving, pytest.raises(ConnectionResetError):
            ask(leaving)


# -- one commit for many producers ---------------------------------------------------------


def commit_group(client: RawClient, group: str, batch: int, members: list[RawProducer]) -> Any:
    find_coordinator(client, group, 1)
    return client.ask(
        CommitGroupRequest(
            group=group,
            run="",
            batch=batch,
            members=[
                CommitGroupMember(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    producer_epoch=one.epoch,
                )
                for one in members
            ],
        ),
        0,
    )


def last_batch(client: RawClient, group: str) -> int:
    answer = client.ask(LastBatchRequest(group=group, run=""), 0)
    assert answer.error_code == NONE
    return int(answer.last_batch)


def member(client: RawClient, group: str, name: str, topic: str) -> RawProducer:
    producer = RawProducer(client, f"millstream:{group}:{name}", topic)
    producer.take_over()
    return producer


def test_many_producers_are_committed_as_one_batch_and_only_once(
    client: RawClient, topic: str
) -> None:
    group = f"query/{topic}"
    members = [member(client, group, str(n), topic) for n in range(5)]
    for number, one in enumerate(members):
        assert one.produce(b"%d" % number, partition=0) is NONE
    assert last_batch(client, group) == -1
    assert values_read(client, topic) == []
    answer = commit_group(client, group, 7, members[:4])
    assert (answer.error_code, answer.already_committed, answer.last_batch) == (NONE, False, 7)
    wait_until(lambda: fetch(client, topic).last_stable_offset == 10, "all markers are there")
    assert values_read(client, topic) == [b"0", b"1", b"2", b"3"], "the one left out is aborted"
    for batch in (7, 6):
        again = commit_group(client, group, batch, members)
        assert (again.error_code, again.already_committed, again.last_batch) == (NONE, True, 7)
    assert last_batch(client, group) == 7
    assert members[0].produce(b"late") is KafkaCode.INVALID_PRODUCER_EPOCH
    assert members[4].produce(b"late") is KafkaCode.INVALID_PRODUCER_EPOCH


def test_a_group_is_committed_wholly_or_not_at_all(client: RawClient, topic: str) -> None:
    group = f"query/{topic}"
    ready, idle = member(client, group, "a", topic), member(client, group, "b", topic)
    assert ready.produce(b"x") is NONE
    assert commit_group(client, group, 1, [ready, idle]).error_code == KafkaCode.INVALID_TXN_STATE
    stranger = RawProducer(client, f"id-{topic}", topic)
    stranger.take_over()
    refused = commit_group(client, group, 1, [ready, stranger])
    assert refused.error_code == KafkaCode.INVALID_REQUEST
    stale = RawProducer(client, ready.transactional_id, topic, producer_id=ready.producer_id)
    stale.epoch = ready.epoch + 5
    assert commit_group(client, group, 1, [stale]).error_code == KafkaCode.PRODUCER_FENCED
    assert last_batch(client, group) == -1
    assert values_read(client, topic) == []
    assert commit_group(client, group, 1, [ready]).error_code == NONE
    assert values_read(client, topic) == [b"x"]


def test_the_last_batch_is_known_after_a_restart(tmp_path: Path) -> None:
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 1}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        one = member(client, "query", "0", "t")
        assert one.produce(b"x") is NONE
        assert commit_group(client, "query", 3, [one]).error_code == NONE
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        find_coordinator(client, "query", 1)
        assert last_batch(client, "query") == 3
        assert commit_group(client, "query", 3, []).already_committed
        assert values_read(client, "t") == [b"x"]


def test_our_own_requests_are_listed_to_our_own_clients_only(client: RawClient) -> None:
    def keys(name: str) -> set[int]:
        answer = client.ask(
            ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3
        )
        return {one.api_key for one in answer.api_keys}

    assert {20_000, 20_001} <= keys("millstream")
    assert max(keys("apache-kafka-java")) < 20_000


def test_an_epoch_per_transaction_is_advertised(client: RawClient) -> None:
    answer = client.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
    )
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels["transaction.version"] == 2


@pytest.mark.parametrize(("status", "times"), [(ShardStatus.ACTIVE, 1), (ShardStatus.CLOSED, 0)])
def test_markers_are_retried_only_for_a_shard_that_is_still_in_use(
    status: ShardStatus, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the shard that has replaced it writes them."""
    tried: list[str] = []
    coordinator = TransactionCoordinator.__new__(TransactionCoordinator)
    monkeypatch.setattr(transactions, "MARKER_RETRY_SECONDS", 0.0)
    monkeypatch.setattr(coordinator, "_write_markers", lambda shard, name: tried.append(name))
    shard: Any = SimpleNamespace(status=status)
    asyncio.run(coordinator._write_markers_later(shard, "t"))
    assert tried == ["t"] * times


@pytest.mark.parametrize("commit", [True, False])
def test_markers_of_many_partitions_are_written_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    """Hundreds of transactions with a thousand partitions may expire together."""
    written: list[int] = []
    write_here = TransactionCoordinator._write_here

    def note(self: TransactionCoordinator, places: Any, *more: Any) -> Any:
        written.append(len(places))
        return write_here(self, places, *more)

    monkeypatch.setattr(TransactionCoordinator, "_write_here", note)
    monkeypatch.setattr(transactions, "_MARKERS_AT_ONCE", 2)
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path, topics={"t": 5}) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        producer = RawProducer(client, "mill", "t")
        producer.take_over()
        for partition in range(5):
            assert producer.produce(b"x", partition=partition, sequence=0) is NONE
        assert producer.end(commit=commit) is NONE
        wait_until(lambda: producer.produce(b"y", sequence=0) is NONE, "the transaction is over")
        assert written == [2, 2, 1]
        for partition in range(5):
            expected = [b"x"] if commit else []
            assert values_read(client, "t", partition=partition) == expected


def test_a_partition_that_moves_between_two_parts_gets_its_marker_on_its_new_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is here no longer, as if it were deleted: without its marker it would be undecided for
    ever."""
    moved: dict[int, int] = {}
    written: list[tuple[int, int]] = []
    completed: list[str] = []

    class Here:
        log = SimpleNamespace(next_offset=1)

        def append_marker(self, marker: object, **more: object) -> None:
            written.append((1, 0))
            moved[1] = 2

    async def write_elsewhere(peers: object, leader: int, places: Any, *more: object) -> None:
        written.extend((leader, index) for index in places["t"])

    async def complete(shard: object, name: str, prepared: object, waits: Any) -> None:
        await asyncio.gather(*waits)
        completed.append(name)

    async def scenario() -> None:
        coordinator = TransactionCoordinator.__new__(TransactionCoordinator)
        node: Any = SimpleNamespace(
            cluster=SimpleNamespace(other_leader=lambda topic, index: moved.get(index), peers=None),
            partitions=SimpleNamespace(
                find=lambda topic, index: None if index in moved else Here()
            ),
            clock=SimpleNamespace(now_ms=lambda: 0),
            disk=SimpleNamespace(
                durability=SimpleNamespace(wait_if_needed=lambda *given, **more: None)
            ),
        )
        coordinator._node = node
        coordinator._parts = asyncio.Lock()
        monkeypatch.setattr(coordinator, "_complete_later", complete)
        ended: Any = SimpleNamespace(
            shard=None,
            transactional_id="mill",
            prepared=None,
            marker=None,
            producer=ProducerEpoch(1, 0),
        )
        ended.is_current = lambda: True
        await coordinator._write_in_parts(ended, [("t", 0), ("t", 1)], {})

    monkeypatch.setattr(transactions, "_MARKERS_AT_ONCE", 1)
    monkeypatch.setattr(transactions, "write_markers", write_elsewhere)
    asyncio.run(scenario())
    assert written == [(1, 0), (2, 1)]
    assert completed == ["mill"]


def test_ids_of_a_coordinator_that_is_being_loaded_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers try again many times a second. None of their ids is new."""
    monkeypatch.setattr(creation_quota, "AT_ONCE_MAX", 1)

    async def codes() -> list[KafkaCode]:
        flags = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = OpenNode(load_config(flags=flags), dev=True)
        await node.start()
        try:
            coordinator = node.transactions
            await coordinator.ensure_topic()
            shard = coordinator.shard_for("id")
            shard.drop(ShardStatus.LOADING, "a test")
            found = [_admission(coordinator, "id") for _ in range(3)]
            await shard.load()
            return [*found, _admission(coordinator, "id")]
        finally:
            await node.stop()

    assert asyncio.run(codes()) == [KafkaCode.COORDINATOR_LOAD_IN_PROGRESS] * 3 + [NONE]


def _admission(coordinator: TransactionCoordinator, transactional_id: str) -> KafkaCode:
    try:
        coordinator.admit(transactional_id, "10.0.0.1")
    except KafkaError as error:
        return error.code
    return NONE
