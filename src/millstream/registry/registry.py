"""One instance of the registry: its state, its log and its place among the other instances.

Every instance answers reads from its own state. Writes are decided by the leader, one at a time,
on a state that was read to the end of the log.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from millstream.client.security import PLAINTEXT, Security
from millstream.registry import decisions, errors
from millstream.registry.decisions import Registration
from millstream.registry.election import Identity
from millstream.registry.formats.table import ParsedSchema
from millstream.registry.log import LogFailed, LogTimedOut, SchemaLog
from millstream.registry.membership import Membership
from millstream.registry.model import Content, Mode, Registered
from millstream.registry.records import Change, SchemaWritten, read_change, write_change
from millstream.registry.state import RegistryState

log = logging.getLogger(__name__)

DEFAULT_TOPIC: Final = "_schemas"
DEFAULT_GROUP: Final = "schema-registry"
# What a client waits while instances elect a leader, or a start is not yet complete.
_LEADER_SECONDS_MAX: Final = 15.0


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How the cluster is reached: by confluent-kafka with `settings`, by our own client with the
    rest."""

    bootstrap: list[tuple[str, int]]
    settings: Mapping[str, Any]
    security: Security = PLAINTEXT


class SchemaRegistry:
    def __init__(
        self,
        cluster: ClusterAccess,
        *,
        topic: str = DEFAULT_TOPIC,
        group_id: str = DEFAULT_GROUP,
    ) -> None:
        self.state = RegistryState()
        self.group_id = group_id
        self._cluster = cluster
        self._log = SchemaLog(
            {"log_level": 0, **cluster.settings}, topic, self._apply, group_id=group_id
        )
        self._membership: Membership | None = None
        # Decisions follow each other: each one sees what the last one wrote.
        self._turn = asyncio.Lock()

    async def start(self, own: Identity) -> None:
        """`own` is where other instances reach this one. Raises StartError."""
        await self._log.start()
        self._membership = Membership(
            self._cluster.bootstrap, self._cluster.security, self.group_id, own
        )
        self._membership.start()

    async def stop(self) -> None:
        if self._membership is not None:
            await self._membership.stop()
        await self._log.stop()

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            change = read_change(key, value)
        except ValueError as wrong:
            log.warning("a record was left out: %s", wrong)
            return
        if change is not None:
            self.state.apply(change)

    @property
    def cluster_id(self) -> str:
        return self._log.cluster_id

    @property
    def position(self) -> int:
        """The offset behind the last record that this instance has applied."""
        return self._log.position

    async def wait_position(self, position: int, timeout_seconds: float) -> None:
        """Raises TimeoutError."""
        await self._log.wait_position(position, timeout_seconds)

    # -- the leader -------------------------------------------------------------------

    async def leader_elsewhere(self) -> Identity | None:
        """The instance that decides about writes; None if it is this one. Raises RegistryError."""
        membership = self._membership
        if membership is None:
            raise errors.leader_unknown()
        leader = await membership.wait_leader(_LEADER_SECONDS_MAX)
        if leader is None:
            raise errors.leader_unknown()
        return None if membership.is_leader else leader

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        async with self._turn:
            try:
                await self._log.begin_writing()
                yield
            except LogTimedOut as failed:
                raise errors.store_timed_out(str(failed)) from None
            except LogFailed as failed:
                raise errors.store_failed(str(failed)) from None

    async def change(self, decide: Callable[[RegistryState], list[Change]]) -> list[Change]:
        """Decide and write, as the leader. Raises RegistryError."""
        async with self._writing():
            changes = decide(self.state)
            await self._log.append([write_change(one) for one in changes])
        return changes

    # -- schemas ----------------------------------------------------------------------

    async def read(
        self, subject: str, content: Content, *, normalize: bool
    ) -> tuple[Content, ParsedSchema]:
        """A client's schema with its text in canonical form. Raises RegistryError."""
        pinned = decisions.pin_references(self.state, content)
        needed = decisions.dependencies_of(self.state, pinned)
        # In a thread, because hostile schemas take a while.
        schema = await asyncio.to_thread(decisions.read_schema, pinned, needed)
        normalize = normalize or self.state.normalizes(subject)
        return decisions.canonical(pinned, schema, normalize=normalize), schema

    def find(self, subject: str, wanted: Registration) -> Registered | None:
        """The version that a registration would give again."""
        versions = self.state.live_versions(subject)
        if wanted.id is not None:
            versions = [one for one in versions if one.id == wanted.id]
        return decisions.find_version(versions, wanted.content)

    async def register(
        self, subject: str, wanted: Registration, schema: ParsedSchema
    ) -> Registered:
        """As the leader; the content of `wanted` is canonical. Raises RegistryError."""
        async with self._writing():
            held = self.find(subject, wanted)
            if held is not None:
                return held
            registered = decisions.register(self.state, subject, wanted)
            if self.state.mode(subject) is not Mode.IMPORT:
                messages = await self._differences(subject, schema)
                if messages:
                    raise errors.incompatible(subject, messages)
            await self._log.append([write_change(SchemaWritten(registered))])
        return registered

    async def _differences(self, subject: str, schema: ParsedSchema) -> list[str]:
        level = self.state.compatibility(subject)
        earlier = decisions.earlier_versions(self.state, subject)
        return await asyncio.to_thread(decisions.differences, level, schema, earlier)

    async def check_with_all(self, subject: str, schema: ParsedSchema) -> list[str]:
        """What speaks against registering a schema. Raises RegistryError."""
        return await self._differences(subject, schema)

    async def check_with_one(
        self, subject: str, schema: ParsedSchema, version: int | None
    ) -> list[str]:
        """The same, compared with one version only. Raises RegistryError."""
        one = decisions.get_version(self.state, subject, version)
        source = decisions.source_of(self.state, one)
        level = self.state.compatibility(subject)
        return await asyncio.to_thread(decisions.differences, level, schema, [source])
