"""Every API can be answered with an error, in every version, and its own client can read it."""

import pytest

from millstream.broker.requests.routes import served_apis
from millstream.errors import KafkaCode
from millstream.testing.error_answers import error_answer
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.codec import fields_of, response_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.message import Api

CODE = KafkaCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_any_request_has_an_answer_with_an_error(api: Api) -> None:
    for version in range(api.min_version, api.max_version + 1):
        defaults = {field.name: field.default for field in fields_of(api.request, version)}
        out = bytearray()
        answer = error_answer(api, api.request(**defaults), version, CODE)
        response_writer(api.request, version)(out, answer)
        response_reader(api.request, version)(Cursor(memoryview(bytes(out))))


def test_errors_stand_in_the_elements_that_were_named() -> None:
    partitions = [ProducePartitionData(index=index, records=b"") for index in (0, 5)]
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=1,
        topic_data=[ProduceTopicData(name="orders", partition_data=partitions)],
    )
    answer = error_answer(ProduceRequest.api, request, 9, CODE)
    [topic] = answer.responses  # type: ignore[attr-defined]
    assert topic.name == "orders"
    assert [(one.index, one.error_code) for one in topic.partition_responses] == [
        (0, CODE),
        (5, CODE),
    ]


def test_names_of_the_same_thing() -> None:
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitTopic(
                name="orders",
                partitions=[
                    OffsetCommitPartition(
                        partition_index=3, committed_offset=1, committed_metadata=""
                    )
                ],
            )
        ],
    )
    [topic] = error_answer(OffsetCommitRequest.api, commit, 6, CODE).topics  # type: ignore[attr-defined]
    assert (topic.name, topic.partitions[0].partition_index) == ("orders", 3)
    create = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ]
    )
    [created] = error_answer(CreateTopicsRequest.api, create, 5, CODE).topics  # type: ignore[attr-defined]
    assert (created.name, created.error_code) == ("new", CODE)
