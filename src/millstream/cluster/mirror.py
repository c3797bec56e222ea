"""Groups under /consumers in ZooKeeper, where old tools look for them.

/consumers/<group>/ids/<member>                  what it subscribed to
/consumers/<group>/owners/<topic>/<partition>    which member reads it
/consumers/<group>/offsets/<topic>/<partition>   the committed offset, as text

A copy for others to read: no group is ever loaded from it. Before a group's first write the
existing znodes are read, but only to remove leftovers of an earlier time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from millstream.cluster.stores.store import Check, Create, Delete, Node, Operation, Put

CONSUMERS: Final = "/consumers"
# Less than a megabyte, ZooKeeper's limit for one transaction.
_OPERATIONS_MAX: Final = 400


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
            tree[f"{root}/owners/{topic}"] = b""
            for partition in partitions:
                tree[f"{root}/owners/{topic}/{partition}"] = member.member_id.encode()
    for topic, committed in offsets.items():
        tree[f"{root}/offsets/{topic}"] = b""
        for partition, offset in committed.items():
            tree[f"{root}/offsets/{topic}/{partition}"] = str(offset).encode()
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
    for start in range(0, len(operations), _OPERATIONS_MAX):
        await store.commit([*guards, *operations[start : start + _OPERATIONS_MAX]])


def _subscription(member: MirroredMember) -> bytes:
    content = {
        "version": 1,
        "subscription": dict.fromkeys(member.topics, 1),
        "pattern": "static",
    }
    return json.dumps(content, separators=(",", ":")).encode()


def _name(text: str) -> str:
    """Names may hold anything or be empty; `/` is ZooKeeper's, and so are `.` and `..` alone."""
    quoted = quote(text, safe="@:+=,") or "%"
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted
