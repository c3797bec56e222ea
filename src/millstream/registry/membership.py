"""An instance in the group that elects the leader: joins, sends heartbeats, joins again.

The leader that it knows stays the leader until the group says otherwise or the session is over.
Two instances may believe for a moment that they lead: `log.py` lets only the newer one write.
"""

import asyncio
import contextlib
import logging
from typing import Final

from millstream import __version__
from millstream.client.aio import Connection, NoAnswer
from millstream.client.security import Security
from millstream.errors import KafkaCode
from millstream.registry.election import (
    PROTOCOL,
    PROTOCOL_TYPE,
    Election,
    Identity,
    elect,
    read_election,
    read_identity,
    write_election,
    write_identity,
)
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.heartbeat import HeartbeatRequest
from millstream.wire.apis.join_group import (
    JoinGroupProtocol,
    JoinGroupRequest,
    JoinGroupResponse,
)
from millstream.wire.apis.leave_group import LeaveGroupMember, LeaveGroupRequest
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest

log = logging.getLogger(__name__)

# The shortest that brokers accept by default.
SESSION_MS: Final = 6_000
_REBALANCE_MS: Final = 6_000
_HEARTBEAT_SECONDS: Final = 1.5
_ANSWER_SECONDS_MAX: Final = 5.0
_CONNECT_SECONDS_MAX: Final = 4.0
# A join is answered when all members have joined, or have been given up.
_JOIN_SECONDS_MAX: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
# Old enough for every Kafka since 2.4, new enough for 4.
_FIND_COORDINATOR: Final = 3
_JOIN: Final = 5
_SYNC: Final = 3
_HEARTBEAT: Final = 3
_LEAVE: Final = 3
_CLIENT_ID: Final = f"millstream-registry/{__version__}"

Address = tuple[str, int]


class _Refused(Exception):
    """The group answered with an error that a new join may cure."""


class Membership:
    """`start()`, then `leader` and `is_leader` say who writes; `wait_leader` waits for one."""

    def __init__(
        self, bootstrap: list[Address], security: Security, group_id: str, own: Identity
    ) -> None:
        self.leader: Identity | None = None
        self.is_leader = False
        self._bootstrap = bootstrap
        self._security = security
        self._group_id = group_id
        self._own = own
        self._member_id = ""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # When the group was lost, by the loop's clock; None while this instance takes part.
        self._lost_at: float | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Leaves, so that the others need not wait for the session to end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with contextlib.suppress(NoAnswer, TimeoutError, _Refused):
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                await self._leave()
        self._set_leader(Election(None, None))

    async def wait_leader(self, timeout_seconds: float) -> Identity | None:
        """None if there is none in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self.leader is None:
                    self._changed.clear()
                    await self._changed.wait()
        return self.leader

    def _set_leader(self, election: Election) -> None:
        is_leader = bool(self._member_id) and election.leader_member_id == self._member_id
        if election.leader != self.leader or is_leader != self.is_leader:
            name = None if election.leader is None else election.leader.url
            log.info("leader of the registry is %s; this instance leads: %s", name, is_leader)
        self.leader, self.is_leader = election.leader, is_leader
        self._changed.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection = await self._connect()
                try:
                    await self._take_part(connection)
                finally:
                    connection.close()
            except (NoAnswer, _Refused) as failed:
                log.info("group %s: %s", self._group_id, failed)
            if self._lost_at is None:
                self._lost_at = loop.time()
            if loop.time() - self._lost_at > SESSION_MS / 1000:
                # The group has given this member up by now.
                self._set_leader(Election(None, None))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _connect(self) -> Connection:
        """To the coordinator of the group."""
        problem: Exception = NoAnswer("no address is known")
        request = FindCoordinatorRequest(key=self._group_id, key_type=0)
        for host, port in self._bootstrap:
            try:
                first = await self._open(host, port)
                try:
                    found = await first.ask(
                        request, _FIND_COORDINATOR, timeout_seconds=_ANSWER_SECONDS_MAX
                    )
                finally:
                    first.close()
            except NoAnswer as failed:
                problem = failed
                continue
            if found.error_code != KafkaCode.NONE:
                problem = _Refused(f"no coordinator yet ({_name(found.error_code)})")
                continue
            return await self._open(found.host, found.port)
        raise problem

    async def _open(self, host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=_CLIENT_ID,
            timeout_seconds=_CONNECT_SECONDS_MAX,
            security=self._security,
        )

    async def _take_part(self, connection: Connection) -> None:
        """Raises NoAnswer and _Refused, and never returns."""
        while True:
            joined = await self._join(connection)
            election = await self._sync(connection, joined)
            self._lost_at = None
            self._set_leader(election)
            await self._send_heartbeats(connection, joined.generation_id)

    async def _join(self, connection: Connection) -> JoinGroupResponse:
        own = Identity(
            self._own.host,
            self._own.port,
            self._own.scheme,
            self._own.may_lead,
            is_leader=self.is_leader,
        )
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                member_id=self._member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupProtocol(name=PROTOCOL, metadata=write_identity(own))],
            )
            answer = await connection.ask(request, _JOIN, timeout_seconds=_JOIN_SECONDS_MAX)
            if answer.error_code == KafkaCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._check(answer.error_code)
            self._member_id = answer.member_id
            return answer

    async def _sync(self, connection: Connection, joined: JoinGroupResponse) -> Election:
        is_group_leader = joined.leader == self._member_id
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=_assignments(joined) if is_group_leader else [],
        )
        answer = await connection.ask(request, _SYNC, timeout_seconds=_JOIN_SECONDS_MAX)
        self._check(answer.error_code)
        try:
            return read_election(bytes(answer.assignment))
        except ValueError as wrong:
            raise _Refused(str(wrong)) from None

    async def _send_heartbeats(self, connection: Connection, generation_id: int) -> None:
        """Until the group wants all to join again."""
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=generation_id, member_id=self._member_id
        )
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            answer = await connection.ask(request, _HEARTBEAT, timeout_seconds=_ANSWER_SECONDS_MAX)
            if answer.error_code == KafkaCode.REBALANCE_IN_PROGRESS:
                return
            self._check(answer.error_code)

    def _check(self, code: int) -> None:
        if code == KafkaCode.NONE:
            return
        if code in (KafkaCode.UNKNOWN_MEMBER_ID, KafkaCode.ILLEGAL_GENERATION):
            # The group has given this member up: it joins as a new one.
            self._member_id = ""
            self._set_leader(Election(None, None))
        raise _Refused(_name(code))

    async def _leave(self) -> None:
        if not self._member_id:
            return
        connection = await self._connect()
        try:
            request = LeaveGroupRequest(
                group_id=self._group_id, members=[LeaveGroupMember(member_id=self._member_id)]
            )
            await connection.ask(request, _LEAVE, timeout_seconds=_ANSWER_SECONDS_MAX)
        finally:
            connection.close()


def _assignments(joined: JoinGroupResponse) -> list[SyncGroupAssignment]:
    """All members get the same assignment. Raises _Refused."""
    try:
        members = {one.member_id: read_identity(bytes(one.metadata)) for one in joined.members}
    except ValueError as wrong:
        raise _Refused(str(wrong)) from None
    decided = write_election(elect(members))
    return [SyncGroupAssignment(member_id=each, assignment=decided) for each in members]


def _name(code: int) -> str:
    try:
        return KafkaCode(code).name
    except ValueError:
        return f"error {code}"
