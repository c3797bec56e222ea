"""DescribeDelegationToken (41), versions 1-3: tokens that the user has, may renew, or may see."""

from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.principals import principal_text, type_and_name
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.broker.security.authentication import Authentication
from millstream.broker.security.tokens import Tokens
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.security.delegation import DelegationToken
from millstream.wire.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

NAMES_FEW = True


async def handle(
    tokens: Tokens,
    authentication: Authentication,
    permissions: Permissions,
    turns: Turns,
    request: Request,
    body: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse:
    owners = None if body.owners is None else {principal_text(each) for each in body.owners}

    def is_shown(token: DelegationToken) -> bool:
        """Those that any of the owners may renew, if the client may, too, or may see them."""
        return (owners is None or any(map(token.may_be_renewed_by, owners))) and (
            token.may_be_renewed_by(request.principal) or _is_visible(permissions, request, token)
        )

    try:
        authentication.check_own_login(request.connection)
        described = [
            _describe(token, tokens.hmac_of(token))
            async for token in turns.each_in_line(request, tokens.present())
            if is_shown(token)
        ]
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    return DescribeDelegationTokenResponse(error_code=KafkaCode.NONE, tokens=described)


def _is_visible(permissions: Permissions, request: Request, token: DelegationToken) -> bool:
    # Without an authorizer, everybody would see the passwords of all.
    return permissions.authorizer is not None and (
        permissions.allows(request, ResourceType.DELEGATION_TOKEN, token.token_id)
        or permissions.allows(request, ResourceType.USER, token.owner)
    )


def _describe(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    kind, name = type_and_name(token.owner)
    requester_kind, requester_name = type_and_name(token.requester)
    renewers = []
    for renewer in token.renewers:
        renewer_kind, renewer_name = type_and_name(renewer)
        renewers.append(
            DescribedDelegationTokenRenewer(
                principal_type=renewer_kind, principal_name=renewer_name
            )
        )
    return DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=renewers,
    )
