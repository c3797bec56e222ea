"""ListPartitionReassignments (46), version 0: none is ever under way on one node."""

from typing import TYPE_CHECKING

from millstream.broker.request import Request
from millstream.errors import KafkaCode
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


def handle(broker: "Broker", request: Request, body: Struct) -> Struct:
    return Struct(error_code=KafkaCode.NONE, error_message=None, topics=[])
