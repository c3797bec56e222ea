"""What other nodes answer about a transaction, and what is made of it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from millstream.broker.coordination.remote_transactions import Codes, ask_coordinator, write_markers
from millstream.broker.membership.peers import Peers
from millstream.client.aio import NoAnswer
from millstream.coordinators.decision import ProducerEpoch
from millstream.errors import KafkaCode, KafkaError
from millstream.records.control import ControlType, EndTransactionMarker
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from millstream.wire.apis.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WrittenTxnMarker,
    WrittenTxnMarkerPartition,
    WrittenTxnMarkerTopic,
)
from millstream.wire.message import Message

PRODUCER = ProducerEpoch(7, 3)
MARKER = EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=5)


class FakePeers:
    """One node, that answers as the test says."""

    def __init__(self, answer: Callable[[Any], Message]) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._answer = answer

    async def ask(
        self, broker_id: int, request: Any, version: int, *, timeout_seconds: float
    ) -> Message:
        self.asked.append((broker_id, request))
        return self._answer(request)


def markers_answer(codes: dict[tuple[str, int], KafkaCode]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WrittenTxnMarker(
                producer_id=PRODUCER.producer_id,
                topics=[
                    WrittenTxnMarkerTopic(
                        name=name,
                        partitions=[
                            WrittenTxnMarkerPartition(partition_index=index, error_code=code)
                        ],
                    )
                    for (name, index), code in codes.items()
                ],
            )
        ]
    )


def write(answer: Callable[[Any], Message], partitions: dict[str, list[int]]) -> FakePeers:
    peers = FakePeers(answer)
    asyncio.run(write_markers(cast("Peers", peers), 2, partitions, MARKER, PRODUCER))
    return peers


def test_markers_are_written_when_every_partition_says_so() -> None:
    codes = {("a", 0): KafkaCode.NONE, ("a", 1): KafkaCode.NONE, ("b", 4): KafkaCode.NONE}
    peers = write(lambda body: markers_answer(codes), {"a": [0, 1], "b": [4]})
    [(node, body)] = peers.asked
    assert node == 2
    assert isinstance(body, WriteTxnMarkersRequest)
    [sent] = body.markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch) == (7, 3, 5)
    assert sent.transaction_result


def test_a_newer_producer_there_means_that_nothing_is_open() -> None:
    write(lambda body: markers_answer({("a", 0): KafkaCode.INVALID_PRODUCER_EPOCH}), {"a": [0]})


@pytest.mark.parametrize(
    "code",
    [
        # The leader changed between the look at the image and the request.
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        # Another coordinator has taken over: this one must not go on as if it had written.
        KafkaCode.TRANSACTION_COORDINATOR_FENCED,
        KafkaCode.NOT_ENOUGH_REPLICAS,
    ],
)
def test_one_partition_that_refuses_fails_the_whole(code: KafkaCode) -> None:
    answer = markers_answer({("a", 0): KafkaCode.NONE, ("a", 1): code})
    with pytest.raises(KafkaError, match="a-1") as failed:
        write(lambda body: answer, {"a": [0, 1]})
    assert failed.value.code is code


def test_a_partition_without_an_answer_has_no_marker() -> None:
    with pytest.raises(KafkaError, match="a-1"):
        write(lambda body: markers_answer({("a", 0): KafkaCode.NONE}), {"a": [0, 1]})


def test_a_node_that_is_gone_in_the_middle_is_an_error_to_try_again_after() -> None:
    def gone(body: Any) -> Message:
        raise NoAnswer("the connection was closed")

    with pytest.raises(KafkaError) as failed:
        write(gone, {"a": [0]})
    assert failed.value.code is KafkaCode.NETWORK_EXCEPTION


def added_answer(
    name: str, codes: dict[tuple[str, int], KafkaCode], code: int = 0
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=name,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=found
                            )
                        ],
                    )
                    for (topic, index), found in codes.items()
                ],
            )
        ],
    )


def verify(answer: Callable[[Any], Message]) -> Codes:
    async def scenario() -> Codes:
        return await ask_coordinator(
            cast("Peers", FakePeers(answer)),
            2,
            "mine",
            PRODUCER,
            {"a": frozenset({0, 1})},
            is_verified_only=True,
        )

    return asyncio.run(scenario())


def test_the_coordinators_word_is_for_each_partition() -> None:
    codes = {("a", 0): KafkaCode.NONE, ("a", 1): KafkaCode.TRANSACTION_ABORTABLE}
    assert verify(lambda body: added_answer("mine", codes)) == codes


def test_what_the_coordinator_does_not_speak_of_is_not_verified() -> None:
    codes = {("a", 0): KafkaCode.NONE}
    told = verify(lambda body: added_answer("mine", codes))
    assert told == {**codes, ("a", 1): KafkaCode.COORDINATOR_NOT_AVAILABLE}
    others = {("a", 0): KafkaCode.NONE, ("a", 1): KafkaCode.NONE}
    told = verify(lambda body: added_answer("somebody else's", others))
    assert set(told.values()) == {KafkaCode.COORDINATOR_NOT_AVAILABLE}


def test_a_coordinator_that_moved_or_is_gone_is_to_be_looked_for_again() -> None:
    with pytest.raises(KafkaError) as failed:
        verify(lambda body: added_answer("mine", {}, KafkaCode.NOT_COORDINATOR))
    assert failed.value.code is KafkaCode.NOT_COORDINATOR

    def gone(body: Any) -> Message:
        raise NoAnswer("no answer in time")

    with pytest.raises(KafkaError) as failed:
        verify(gone)
    assert failed.value.code is KafkaCode.COORDINATOR_NOT_AVAILABLE
