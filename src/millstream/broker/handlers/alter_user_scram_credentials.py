"""AlterUserScramCredentials (51), version 0."""

from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.logins import Logins
from millstream.cluster.client_entities import ClientEntity
from millstream.errors import KafkaCode, KafkaError
from millstream.security.sasl.scram_changes import Change, Deletion, Upsertion, decide_changes
from millstream.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from millstream.wire.message import Message

HOLDS_NEXT_REQUEST = True


async def handle(
    node: NodeState,
    logins: Logins,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    decided = decide_changes(_changes(body), dict(logins.scram.users()))
    results = []
    async for user, change in turns.each(request, list(decided.items())):
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
            answer.error_code, answer.error_message = error.code, error.message
        results.append(answer)
    return AlterUserScramCredentialsResponse(results=results)


def refuse(request: Request, body: AlterUserScramCredentialsRequest, code: KafkaCode) -> Message:
    names = [each.name for each in body.deletions] + [each.name for each in body.upsertions]
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code)
            for user in dict.fromkeys(names)
        ]
    )


def _changes(body: AlterUserScramCredentialsRequest) -> list[Change]:
    deletions = [Deletion(each.name, each.mechanism) for each in body.deletions]
    upsertions = [
        Upsertion(
            each.name,
            each.mechanism,
            each.iterations,
            bytes(each.salt),
            bytes(each.salted_password),
        )
        for each in body.upsertions
    ]
    return [*deletions, *upsertions]
