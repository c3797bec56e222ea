"""DescribeUserScramCredentials (50), version 0."""

from collections import Counter

from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.logins import Logins
from millstream.errors import KafkaCode
from millstream.security.sasl.scram_changes import MECHANISM_NUMBERS
from millstream.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)
from millstream.wire.message import Message


async def handle(
    logins: Logins, turns: Turns, request: Request, body: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    named = await turns.prepared(
        request, lambda each: Counter(user.name for user in each(body.users or ()))
    )
    wanted = list(named) or [user for user, _ in logins.scram.users()]
    results = []
    async for user in turns.each_in_line(request, wanted):
        results.append(_describe(logins, user, is_named_twice=named[user] > 1))
    return DescribeUserScramCredentialsResponse(error_code=KafkaCode.NONE, results=results)


def refuse(request: Request, body: DescribeUserScramCredentialsRequest, code: KafkaCode) -> Message:
    return DescribeUserScramCredentialsResponse(error_code=code, results=[])


def _describe(
    logins: Logins, user: str, *, is_named_twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = []
    for mechanism, number in MECHANISM_NUMBERS.items():
        credential = logins.scram.find(mechanism, user)
        if credential is not None:
            infos.append(ScramCredentialInfo(mechanism=number, iterations=credential.iterations))
    code, message = KafkaCode.NONE, None
    if is_named_twice:
        code = KafkaCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice: {user}"
    elif not infos:
        code = KafkaCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=code,
        error_message=message,
        credential_infos=[] if code else infos,
    )
