"""LeaveGroup (13), versions 0-5: one member goes, from version 3 on several at once."""

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.requests.request import Request
from millstream.coordinators.classic.protocol import Leaving
from millstream.coordinators.groups import requests
from millstream.errors import KafkaCode
from millstream.wire.messages import Struct

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

BATCHED_FROM: Final = 3


def handle(
    broker: "Broker", request: Request, body: Struct
) -> Struct | Coroutine[Any, Any, Struct]:
    if request.version >= BATCHED_FROM:
        leaving = [Leaving(m.member_id, m.group_instance_id) for m in body.members]
    else:
        leaving = [Leaving(body.member_id, None)]

    def show(codes: Sequence[KafkaCode]) -> Struct:
        if request.version < BATCHED_FROM:
            return Struct(error_code=codes[0], members=[])
        return Struct(
            error_code=KafkaCode.NONE,
            members=[
                Struct(member_id=who.member_id, group_instance_id=who.instance_id, error_code=code)
                for who, code in zip(leaving, codes, strict=True)
            ],
        )

    return broker.coordinators.ask(
        body.group_id,
        lambda state, env: requests.leave(state, body.group_id, leaving, env),
        show=show,
        refuse=lambda error: Struct(error_code=error.code, members=[]),
    )
