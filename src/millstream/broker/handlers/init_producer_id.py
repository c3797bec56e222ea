"""InitProducerId (22), versions 0-5: an id for an idempotent producer, never given twice."""

from typing import TYPE_CHECKING

from millstream.broker.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_PRODUCER_ID
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


async def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    try:
        if body.transactional_id is not None:
            raise KafkaError(
                KafkaCode.INVALID_REQUEST
                if body.transactional_id == ""
                else KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        return Struct(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=-1)
    return Struct(error_code=KafkaCode.NONE, producer_id=producer_id, producer_epoch=0)
