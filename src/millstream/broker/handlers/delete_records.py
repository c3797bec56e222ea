"""DeleteRecords (21), versions 0-2: moves the start of a log."""

from typing import TYPE_CHECKING, Final

from millstream.broker.request import Request
from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.model import INTERNAL_TOPICS
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

TO_HIGH_WATERMARK: Final = -1


async def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    answer = Struct(
        topics=[
            Struct(
                name=topic.name,
                partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in body.topics
        ]
    )
    # What was deleted must not come back after a crash.
    try:
        await broker.checkpoint()
    except NoSpace:
        _refuse(answer)
    if broker.disk_failure is not None:
        _refuse(answer)
    return answer


def _refuse(answer: Struct) -> None:
    """Nothing was written down, so nothing is promised."""
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code == KafkaCode.NONE:
                partition.error_code = KafkaCode.KAFKA_STORAGE_ERROR
                partition.low_watermark = -1


def _delete(broker: "Broker", topic: str, wanted: Struct) -> Struct:
    answer = Struct(
        partition_index=wanted.partition_index, low_watermark=-1, error_code=KafkaCode.NONE
    )
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION)
        partition = broker.partitions.get(topic, wanted.partition_index)
        partition.require_online()
        if not partition.log.config.is_deleted:
            raise KafkaError(KafkaCode.POLICY_VIOLATION, "cleanup.policy does not delete")
        offset = wanted.offset
        if offset == TO_HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(KafkaCode.OFFSET_OUT_OF_RANGE)
        answer.low_watermark = partition.log.delete_records_before(offset)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
