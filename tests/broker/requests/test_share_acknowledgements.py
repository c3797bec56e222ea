from contextlib import nullcontext

import pytest

from millstream.broker.requests.share_acknowledgements import (
    BATCHES_MAX,
    PARTITIONS_MAX,
    check_size,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.share_fetch import ShareFetchRequest, ShareFetchResponse
from millstream.wire.codec import response_reader
from millstream.wire.cursor import Cursor
from tests.support.attacks import Aim, create_topic, first_share_fetch, share_member
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

_HEADER_BYTES = 5


@pytest.mark.parametrize(
    ("partitions", "batches", "is_allowed"),
    [
        (PARTITIONS_MAX, BATCHES_MAX, True),
        (PARTITIONS_MAX + 1, 0, False),
        (1, BATCHES_MAX + 1, False),
    ],
)
def test_a_request_has_a_size(partitions: int, batches: int, is_allowed: bool) -> None:
    with nullcontext() if is_allowed else pytest.raises(KafkaError):
        check_size(partitions, batches)


@pytest.mark.parametrize("partitions", [3, PARTITIONS_MAX + 1])
def test_a_fetch_of_too_many_partitions_is_refused(partitions: int) -> None:
    aim = Aim()
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        create_topic(client, aim.topic)
        frame = first_share_fetch(share_member(client, aim), aim, partitions)
        client.sock.sendall(frame)
        answer = client.receive_frame()[_HEADER_BYTES:]
        read = response_reader(ShareFetchRequest, 1)
        response = read(Cursor(memoryview(answer)))
        assert isinstance(response, ShareFetchResponse)
        expected = KafkaCode.NONE if partitions <= PARTITIONS_MAX else KafkaCode.INVALID_REQUEST
        assert response.error_code == expected
