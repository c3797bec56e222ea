from millstream.errors import KafkaCode
from millstream.wire.apis import ApiKey
from millstream.wire.messages import Struct
from tests.broker.handlers.exchanges import batch, fetch, produce
from tests.support.raw_client import RawClient


def test_delete_records_moves_the_start_and_refuses_what_is_not_there(
    client: RawClient, topic: str
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))

    def delete(offset: int) -> Struct:
        response = client.ask(
            ApiKey.DELETE_RECORDS,
            2,
            topics=[Struct(name=topic, partitions=[Struct(partition_index=0, offset=offset)])],
            timeout_ms=5000,
        )
        result = response.topics[0].partitions[0]
        assert isinstance(result, Struct)
        return result

    assert delete(2).low_watermark == 2
    assert fetch(client, topic, 1).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(99).error_code == KafkaCode.OFFSET_OUT_OF_RANGE
    assert delete(-1).low_watermark == 3
