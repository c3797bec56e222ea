"""Describes groups, whatever their protocol: who may see which, and how much fits a response."""

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import TOO_LARGE, Turns, Weight
from millstream.coordinators.decision import Decision, Env
from millstream.coordinators.groups.state import ShardState
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.message import NO_OPERATIONS, Message

G = TypeVar("G")
D = TypeVar("D", bound=Message)
Response = TypeVar("Response", bound=Message)


class Body(Protocol):
    """A request to describe groups."""

    @property
    def group_ids(self) -> list[str]: ...
    @property
    def include_authorized_operations(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Kind(Generic[G, D]):
    """How groups of one protocol are described."""

    # Raises KafkaError where there is no such group.
    find: Callable[[ShardState, Env, str], Decision[G]]
    # With the operations that are allowed on the group.
    describe: Callable[[G, int], D]
    refuse: Callable[[str, KafkaError], D]
    # What a description names; a client that may not see all of it gets none.
    topics: Callable[[D], Collection[str]]
    hidden: str
    # About how many bytes a description takes.
    weight: Callable[[D], int]


def describe_groups(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: Body,
    kind: Kind[G, D],
    combine: Callable[[list[D]], Response],
) -> Response | Coroutine[Any, Any, Response]:
    def describe(group_id: str) -> D | Coroutine[Any, Any, D]:
        denied = permissions.denial(request, ResourceType.GROUP, group_id)
        if denied is not None:
            return kind.refuse(group_id, denied.error())

        def show(group: G) -> D:
            operations = NO_OPERATIONS
            if body.include_authorized_operations:
                operations = permissions.operations(request, ResourceType.GROUP, group_id)
            found = kind.describe(group, operations)
            names = kind.topics(found)
            if not all(permissions.allows(request, ResourceType.TOPIC, name) for name in names):
                hidden = KafkaError(KafkaCode.TOPIC_AUTHORIZATION_FAILED, kind.hidden)
                return kind.refuse(group_id, hidden)
            return found

        return groups.ask(
            group_id,
            lambda state, env: kind.find(state, env, group_id),
            show=show,
            refuse=lambda error: kind.refuse(group_id, error),
        )

    too_large = KafkaError(KafkaCode.INVALID_REQUEST, TOO_LARGE)
    weight: Weight[str, D] = Weight(kind.weight, lambda group_id: kind.refuse(group_id, too_large))
    return turns.prepare(
        request,
        lambda each: dict.fromkeys(each(body.group_ids)),
        lambda wanted: turns.answer_each(request, wanted, describe, combine, weight),
    )
