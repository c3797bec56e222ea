"""Groups under /consumers in ZooKeeper, where old tools look for them.

/consumers/<group>/ids/<member>                  what it subscribed to
/consumers/<group>/owners/<topic>/<partition>    which member reads it
/consumers/<group>/offsets/<topic>/<partition>   the committed offset, as text

Names of groups, members and topics are quoted: members of classic groups invent even the topics.

A copy for others to read: no group is ever loaded from it. Before a group's first write the
existing znodes are read, but only to remove leftovers of an earlier time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from millstream.cluster.stores.store import Check, Create, Delete, Node, Operation, Put
from millstream.cluster.stores.transaction_size import TRANSACTION_BYTES_MAX, size_bytes

CONSUMERS: Final = "/consumers"
# What is not counted exactly, as lists of permissions, then stays below ZooKeeper's limit, too.
_OPERATIONS_MAX: Final = 400
# One znode in a transaction, beside the longest names.
_SUBSCRIPTION_BYTES_MAX: Final = 500_000


@dataclass(frozen=True, slots=True)
class MirroredMember:
    member_id: str
    topics: tuple[str, ...]
    # Partitions by topic.
    assigned: Mapping[str, Sequence[int]]


class Store(Protocol):
    async def exists(self, path: str) -> bool: ...

    async def tree(self, path: str) -> dict[str, Node]: ...

    async def commit(self, operations: Sequence[Operation]) -> list[int]: ...


def group_path(group_id: str) -> str:
    return f"{CONSUMERS}/{_name(group_id)}"


def consumers_tree(
    group_id: str,
    members: Sequence[MirroredMember],
    offsets: Mapping[str, Mapping[int, int]],
) -> dict[str, bytes]:
    """Every znode of a group by its path; none if it has neither members nor offsets."""
    root = group_path(group_id)
    tree: dict[str, bytes] = {}
    if members or offsets:
        tree = {root: b"", f"{root}/ids": b"", f"{root}/owners": b"", f"{root}/offsets": b""}
    for member in members:
        tree[f"{root}/ids/{_name(member.member_id)}"] = _subscription(member)
        for topic, partitions in member.assigned.items():
            owners = f"{root}/owners/{_name(topic)}"
            tree[owners] = b""
            for partition in partitions:
                tree[f"{owners}/{partition}"] = member.member_id.encode()
    for topic, committed in offsets.items():
        parent = f"{root}/offsets/{_name(topic)}"
        tree[parent] = b""
        for partition, offset in committed.items():
            tree[f"{parent}/{partition}"] = str(offset).encode()
    return tree


def changes(known: Mapping[str, bytes], wanted: Mapping[str, bytes]) -> list[Operation]:
    """The operations that lead to `wanted`: parents are created first and deleted last."""
    operations: list[Operation] = []
    for path in sorted(wanted):
        if path not in known:
            operations.append(Create(path, wanted[path]))
        elif known[path] != wanted[path]:
            operations.append(Put(path, wanted[path]))
    operations += [Delete(path) for path in sorted(known, reverse=True) if path not in wanted]
    return operations


async def read_group(store: Store, group_id: str) -> dict[str, bytes]:
    """The existing znodes of a group."""
    root = group_path(group_id)
    found = {path: node.data for path, node in (await store.tree(root)).items()}
    if found or await store.exists(root):
        found[root] = b""
    return found


async def write_group(
    store: Store, operations: Sequence[Operation], guards: Sequence[Check]
) -> None:
    """Raises NotApplied if a guard does not hold, or another node wrote in the meantime."""
    if operations and not await store.exists(CONSUMERS):
        await store.commit([*guards, Create(CONSUMERS)])
    room_bytes = TRANSACTION_BYTES_MAX - sum(map(size_bytes, guards))
    for part in _parts(operations, room_bytes):
        await store.commit([*guards, *part])


def _parts(operations: Sequence[Operation], room_bytes: int) -> Iterator[list[Operation]]:
    """What fits into one transaction each."""
    part: list[Operation] = []
    taken_bytes = 0
    for operation in operations:
        size = size_bytes(operation)
        if part and (len(part) == _OPERATIONS_MAX or taken_bytes + size > room_bytes):
            yield part
            part, taken_bytes = [], 0
        part.append(operation)
        taken_bytes += size
    if part:
        yield part


def _subscription(member: MirroredMember) -> bytes:
    data = _encode_subscription(member.topics)
    # If a subscription is too large for a transaction, the mirror shows the member without it.
    return data if len(data) <= _SUBSCRIPTION_BYTES_MAX else _encode_subscription(())


def _encode_subscription(topics: Sequence[str]) -> bytes:
    content = {"version": 1, "subscription": dict.fromkeys(topics, 1), "pattern": "static"}
    return json.dumps(content, separators=(",", ":")).encode()


def _name(text: str) -> str:
    """Names may hold anything or be empty; `/` is ZooKeeper's, and so are `.` and `..` alone."""
    quoted = quote(text, safe="@:+=,") or "%"
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted
