"""SASL on a connection: who may log in, until when, and what ends a session.

A connection of a SASL listener is restricted from its first byte: small frames, a deadline, and
no request but ApiVersions, SaslHandshake and SaslAuthenticate. A login lifts the restriction.
It returns when the session expires (KIP-368); when a credential is changed or deleted, the
connections that used it are closed.

| session          | SaslHandshake      | SaslAuthenticate    | other requests |
|------------------|--------------------|---------------------|----------------|
| new              | chooses            | ILLEGAL_SASL_STATE  | close          |
| mechanism chosen | ILLEGAL_SASL_STATE | one step            | close          |
| logged in        | begins another     | ILLEGAL_SASL_STATE  | served         |
|  and choosing    | ILLEGAL_SASL_STATE | one step, same user | served         |
| expired          | as logged in       | as logged in        | close          |

Every error closes the connection. After version 0 of SaslHandshake, messages of the mechanism
arrive without SaslAuthenticate, and the table is the same.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.broker.network.connection import Answer, Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.security.mechanisms import Conversation, Login, Mechanism
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.lazy_dataclass import dataclass
from millstream.model import Principal
from millstream.security.sasl.outcome import AuthenticationFailed

log = logging.getLogger(__name__)

AUTHENTICATION_SECONDS_MAX: Final = 10.0
_SIZE = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class SaslListener:
    """How clients of one listener log in. `reauthenticate_ms` is 0 if a session may last."""

    mechanisms: Mapping[str, Mechanism]
    frame_bytes_max: int
    reauthenticate_ms: int


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A step that succeeded. `session_lifetime_ms` is 0 until the last one, or without a limit."""

    reply: bytes
    session_lifetime_ms: int = 0


class Session:
    __slots__ = ("conversation", "listener", "login", "mechanism", "timer")

    def __init__(self, listener: SaslListener) -> None:
        self.listener = listener
        self.mechanism = ""
        # The login in progress.
        self.conversation: Conversation | None = None
        # The last one that succeeded.
        self.login: Login | None = None
        # Closes a connection that does not log in; then, ends the session when it expires.
        self.timer: asyncio.TimerHandle | None = None

    def set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        self.cancel_timer()
        self.timer = asyncio.get_running_loop().call_later(seconds, call)

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Authentication:
    """`dispatch_sasl` answers the requests of a restricted connection."""

    def __init__(
        self,
        listeners: Mapping[str, SaslListener],
        *,
        dispatch_sasl: Answer,
        now_ms: Callable[[], int],
        failure_delay_seconds: float,
    ) -> None:
        self._listeners = listeners
        self._dispatch_sasl = dispatch_sasl
        self._now_ms = now_ms
        self._failure_delay_seconds = failure_delay_seconds
        # Connections that have logged in.
        self._sessions: set[Connection] = set()

    def begin(self, connection: Connection) -> None:
        """For every new connection."""
        listener = self._listeners.get(connection.listener)
        if listener is None:
            return
        session = Session(listener)
        connection.session = session
        self._restrict(connection, session)
        session.set_timer(AUTHENTICATION_SECONDS_MAX, lambda: _close_unfinished(connection))

    def _restrict(self, connection: Connection, session: Session) -> None:
        connection.restrict(self._dispatch_sasl, frame_bytes_max=session.listener.frame_bytes_max)

    def end(self, connection: Connection) -> None:
        """For every closed connection that has a session."""
        _session(connection).cancel_timer()
        self._sessions.discard(connection)

    def recheck(self) -> None:
        """Credentials have changed: close the connections whose credential no longer counts."""
        for connection in tuple(self._sessions):
            login = _session(connection).login
            if login is not None and not login.is_current():
                connection.close("its credential was changed or deleted")

    # -- requests ---------------------------------------------------------------------

    def choose(self, connection: Connection, mechanism: str) -> Sequence[str]:
        """SaslHandshake. The mechanisms that the listener has; raises KafkaError with them."""
        session = self._session_of(connection)
        if session.conversation is not None:
            raise self._illegal(connection, "SaslHandshake in the middle of an authentication")
        if session.login is not None and mechanism != session.mechanism:
            raise self._illegal(connection, "a session keeps its SASL mechanism")
        names = list(session.listener.mechanisms)
        found = session.listener.mechanisms.get(mechanism)
        if found is None:
            connection.close_when_sent(f"SASL mechanism {mechanism:.40} is not enabled")
            raise KafkaError(KafkaCode.UNSUPPORTED_SASL_MECHANISM, ", ".join(names))
        session.mechanism = mechanism
        session.conversation = found.begin()
        return names

    def expect_bare_messages(self, connection: Connection) -> None:
        """After version 0 of SaslHandshake, frames hold messages of the mechanism and nothing
        else, until the client has logged in. librdkafka asks for this version."""
        session = self._session_of(connection)
        limit = session.listener.frame_bytes_max
        connection.restrict(self._answer_bare_message, frame_bytes_max=limit)

    def _answer_bare_message(self, connection: Connection, frame: memoryview) -> Pending:
        return Pending(self._bare_step(connection, bytes(frame)), gate=True)

    async def _bare_step(self, connection: Connection, message: bytes) -> Pieces:
        try:
            done = await self.authenticate(connection, message)
        except KafkaError as error:
            # There is no way to say why.
            raise ProtocolError(error.message) from None
        return [_SIZE.pack(len(done.reply)) + done.reply]

    def mechanisms(self, connection: Connection) -> Sequence[str]:
        """Those that the connection's listener has."""
        listener = self._listeners.get(connection.listener)
        return [] if listener is None else list(listener.mechanisms)

    def check_own_login(self, connection: Connection) -> None:
        """Has the user itself logged in, and not a delegation token? Raises KafkaError."""
        session = connection.session
        login = session.login if isinstance(session, Session) else None
        if login is None or login.is_by_token:
            raise KafkaError(
                KafkaCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "delegation tokens are for users who log in by SASL, and not by a token",
            )

    async def authenticate(self, connection: Connection, message: bytes) -> Authenticated:
        """SaslAuthenticate. Raises KafkaError."""
        session = self._session_of(connection)
        if session.conversation is None:
            raise self._illegal(connection, "SaslAuthenticate without SaslHandshake")
        try:
            step = await session.conversation.answer(message)
            if step.login is None:
                return Authenticated(step.reply)
            return Authenticated(step.reply, self._logged_in(connection, session, step.login))
        except AuthenticationFailed as failed:
            session.conversation = None
            # Guessing must be slow, whatever was wrong.
            await asyncio.sleep(self._failure_delay_seconds)
            connection.close_when_sent(f"{session.mechanism} failed: {failed}")
            raise KafkaError(KafkaCode.SASL_AUTHENTICATION_FAILED, str(failed)) from failed

    def _logged_in(self, connection: Connection, session: Session, login: Login) -> int:
        """The lifetime of the session in milliseconds. Raises AuthenticationFailed."""
        principal = Principal(f"User:{login.identity.user}")
        if session.login is not None and principal != connection.principal:
            raise AuthenticationFailed("Authentication failed: a session keeps its user")
        lifetime_ms = self._lifetime_ms(session.listener, login)
        if connection.is_closed:
            return lifetime_ms
        session.conversation = None
        session.login = login
        session.cancel_timer()
        if lifetime_ms:
            session.set_timer(lifetime_ms / 1000, lambda: self._restrict(connection, session))
        connection.identify(principal)
        connection.lift_restriction()
        self._sessions.add(connection)
        log.debug("%s is %s by %s", connection.peer, principal, session.mechanism)
        return lifetime_ms

    def _lifetime_ms(self, listener: SaslListener, login: Login) -> int:
        limits = [listener.reauthenticate_ms] if listener.reauthenticate_ms > 0 else []
        if login.identity.expires_at_ms is not None:
            limits.append(login.identity.expires_at_ms - self._now_ms())
        # 0 would mean that the session lasts.
        return max(1, min(limits)) if limits else 0

    def _session_of(self, connection: Connection) -> Session:
        if not isinstance(connection.session, Session):
            raise KafkaError(
                KafkaCode.ILLEGAL_SASL_STATE, f"listener {connection.listener} has no SASL"
            )
        return connection.session

    def _illegal(self, connection: Connection, text: str) -> KafkaError:
        connection.close_when_sent(text)
        return KafkaError(KafkaCode.ILLEGAL_SASL_STATE, text)


def _session(connection: Connection) -> Session:
    assert isinstance(connection.session, Session)
    return connection.session


def _close_unfinished(connection: Connection) -> None:
    # Nodes watch each other's ports with connections on which they say nothing.
    has_spoken = connection.client_id is not None or connection.partial_bytes > 0
    reason = f"not authenticated within {AUTHENTICATION_SECONDS_MAX:.0f} s"
    connection.close(reason if has_spoken else None)
