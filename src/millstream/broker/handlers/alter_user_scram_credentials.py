"""AlterUserScramCredentials (51), version 0."""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.pacing import Each
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.logins import Logins
from millstream.cluster.client_entities import ClientEntity
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.security.sasl.scram_changes import Change, Deletion, Upsertion, decide_changes
from millstream.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True

# As many as Kafka's controller decides at once. Each is kept until all are decided.
_CHANGES_MAX: Final = 10_000


async def handle(
    node: NodeState,
    logins: Logins,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    if len(body.deletions) + len(body.upsertions) > _CHANGES_MAX:
        raise ProtocolError("a request with too many users")
    known = dict(logins.scram.users())
    pace = turns.pace(request)
    # In a thread, however few: each verifier is computed from a password.
    decided = await turns.in_thread(
        lambda: list(decide_changes(_changes(pace, body), known).items())
    )
    results = []
    async for user, change in turns.each(request, decided):
        answer = AlterUserScramCredentialsResult(user=user, error_code=KafkaCode.NONE)
        try:
            if isinstance(change, KafkaError):
                raise change
            await node.metadata.alter_client_entity(ClientEntity(user=user), change)
            text = ", ".join(
                f"{mechanism} {'deleted' if value is None else 'set'}"
                for mechanism, value in change.items()
            )
            permissions.report_change(request, f"SCRAM credentials of user {user!r}: {text}")
        except KafkaError as error:
            failed = error.kept()
            answer.error_code, answer.error_message = failed.code, failed.message
        results.append(answer)
    if request.is_long:
        turns.free_soon(request, decided)
    return AlterUserScramCredentialsResponse(results=results)


def refuse(request: Request, body: AlterUserScramCredentialsRequest, code: KafkaCode) -> Message:
    names = [each.name for each in body.deletions] + [each.name for each in body.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code)
            for user in dict.fromkeys(names)
        ]
    )


def _changes(each: Each, body: AlterUserScramCredentialsRequest) -> list[Change]:
    deletions = [Deletion(one.name, one.mechanism) for one in each(body.deletions)]
    upsertions = [
        Upsertion(
            one.name,
            one.mechanism,
            one.iterations,
            bytes(one.salt),
            bytes(one.salted_password),
        )
        for one in each(body.upsertions)
    ]
    return [*deletions, *upsertions]
