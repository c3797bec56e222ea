"""The quota of changes to the cluster, for the requests that create and delete partitions."""

from millstream.broker.requests.request import Request
from millstream.broker.security.quota_use import ClientQuotas, Mutations


def mutations(quotas: ClientQuotas, request: Request, *, strict_from: int) -> Mutations:
    limits = quotas.of(request.principal, request.header.client_id)
    return Mutations(limits, is_strict=request.version >= strict_from)


def mute(request: Request, changes: Mutations) -> int:
    """Mute the client as long as it has to wait; returns the milliseconds, for the response."""
    wait = changes.wait_seconds
    if wait <= 0:
        return 0
    request.connection.mute(wait)
    return int(wait * 1000)
