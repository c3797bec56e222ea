"""The first connection of a command: proves that a Kafka broker answers at the address.

Client libraries retry silently when nothing listens, when something else listens, and when a
broker dies. Here each of these is a line of text within seconds.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from millstream import __version__
from millstream.cli.address import parse_address
from millstream.cli.client_options import security_of_command
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.client.blocking import Address, Connection
from millstream.client.security import PLAINTEXT, Security, SecurityError
from millstream.errors import ProtocolError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

# For all addresses together: people wait no longer than five seconds for any failure.
_SECONDS_MAX: Final = 4.0
_SECONDS_MIN: Final = 1.0
# A broker that restarts is back before this.
_GONE_SECONDS_MAX: Final = 3.0
_CHECK_EVERY_SECONDS: Final = 0.5

CLIENT_ID: Final = f"millstream/{__version__}"


@contextlib.contextmanager
def connect_first(bootstrap: str) -> Iterator[Connection]:
    """A connection to the first address where a broker answers. Raises CommandFailed."""
    connection = open_first(bootstrap, security_of_command())
    try:
        yield connection
    finally:
        connection.close()


def open_first(bootstrap: str, security: Security = PLAINTEXT) -> Connection:
    """The same, for callers that keep the connection and close it."""
    addresses = [Address(*parse_address(text.strip())) for text in bootstrap.split(",")]
    seconds_max = max(_SECONDS_MAX / len(addresses), _SECONDS_MIN)
    problems = []
    for address in addresses:
        try:
            return _open(address, security, seconds_max)
        except ConnectionRefusedError:
            problems.append(f"{address} refused the connection")
        except _NoKafka as problem:
            problems.append(f"{address} {problem}")
        except ProtocolError:
            problems.append(f"{address} answers, but not in Kafka's protocol")
        except SecurityError as problem:
            raise CommandFailed(f"{address}: {problem}") from None
        except OSError as failed:
            problems.append(f"{address} is not reachable ({failed.strerror or failed})")
    raise CommandFailed(
        f"{'; '.join(problems)}. Is a broker running there? Start one with: millstream dev",
        exit_code=ExitCode.UNREACHABLE,
    )


class _NoKafka(Exception):
    """The address is in use by something that is no broker, or by one that hangs."""


def _open(address: Address, security: Security, seconds_max: float) -> Connection:
    try:
        connection = Connection(
            address,
            client_id=CLIENT_ID,
            security=security,
            connect_seconds_max=seconds_max,
            login_seconds_max=seconds_max,
        )
        try:
            connection.versions  # noqa: B018 - asks for them
        except BaseException:
            connection.close()
            raise
    except TimeoutError:
        raise _NoKafka(
            f"did not answer in {seconds_max:.0f} s: it hangs, is not a Kafka broker, or is behind "
            "a firewall"
        ) from None
    except (ConnectionResetError, BrokenPipeError) as closed:
        _, _, hint = str(closed).partition("closed the connection")
        raise _NoKafka(f"closes connections without an answer{hint}") from None
    return connection


class BrokerWatch:
    """Notices that no broker answers any more, while a client library retries.

    The library reports what it sees to `on_error`; `check` believes it when a new connection
    fails, too, for longer than a restart takes.
    """

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._security = security_of_command()
        # The library's error, or our own doubt; None while all is well.
        self._suspected = False
        self._gone_since: float | None = None
        self._checked_at = 0.0

    def on_error(self, error: "KafkaError") -> None:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            self._suspected = True

    def suspect(self) -> None:
        """Something is overdue."""
        self._suspected = True

    def check(self) -> None:
        """Raises CommandFailed if all brokers are gone. Cheap as long as nothing is suspected."""
        if not self._suspected or time.monotonic() - self._checked_at < _CHECK_EVERY_SECONDS:
            return
        began = time.monotonic()
        try:
            open_first(self.bootstrap, self._security).close()
        except CommandFailed:
            if self._gone_since is None:
                self._gone_since = began
            if time.monotonic() - self._gone_since >= _GONE_SECONDS_MAX:
                raise
        else:
            self._suspected, self._gone_since = False, None
        self._checked_at = time.monotonic()
