"""The keys that sign bearer tokens: a JSON Web Key Set in a file or at an https address.

Read in a thread: at the start, at intervals, and when a token names an unknown key, but then
not more often than the pause between two attempts allows.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from millstream.config import ListenerConfig
from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.jwt_check import VerificationKey, read_keys

log = logging.getLogger(__name__)

_BYTES_MAX: Final = 1 << 20
_READ_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """`url` is a file: URL, or an https: URL that is on the list of those allowed."""

    url: str
    refresh_seconds: float
    pause_seconds: float


def key_location(config: ListenerConfig, allowed_urls: Sequence[str]) -> KeyLocation:
    """Raises ConfigError."""
    option = "sasl.oauthbearer.jwks.endpoint.url"
    url = config.optional_string("sasl.oauthbearer.jwks.endpoint.url")
    if url is None:
        raise ConfigError(f"{option}: OAUTHBEARER needs the keys that sign tokens")
    scheme = urlsplit(url).scheme
    if scheme not in ("file", "https"):
        raise ConfigError(f"{option}: must be a file: or an https: URL")
    if scheme == "https" and url not in allowed_urls:
        raise ConfigError(
            f"{option}: {url} is not in org.apache.kafka.sasl.oauthbearer.allowed.urls"
        )
    return KeyLocation(
        url,
        config.int("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
    )


class TokenKeys:
    """`seconds` is the monotonic clock."""

    def __init__(self, location: KeyLocation, seconds: Callable[[], float]) -> None:
        self._location = location
        self._seconds = seconds
        self._keys: Sequence[VerificationKey] = ()
        self._read_at = 0.0
        self._reading: asyncio.Task[None] | None = None

    def load(self) -> None:
        """At the start. Raises ConfigError."""
        try:
            self._keys = read_keys(_read(self._location.url))
        except ImportError:
            raise ConfigError(
                "OAUTHBEARER needs PyJWT: pip install 'millstream[security]'"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None
        self._read_at = self._seconds()

    @property
    def keys(self) -> Sequence[VerificationKey]:
        """Begins to read them again if they are old."""
        if self._seconds() - self._read_at >= self._location.refresh_seconds:
            self._begin_reading()
        return self._keys

    async def read_again(self) -> Sequence[VerificationKey]:
        """The keys may have changed."""
        if self._seconds() - self._read_at >= self._location.pause_seconds:
            self._begin_reading()
        if self._reading is not None:
            await asyncio.wait([self._reading])
        return self._keys

    def _begin_reading(self) -> None:
        if self._reading is None:
            self._read_at = self._seconds()
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._reading_ended)

    async def _read(self) -> None:
        try:
            text = await asyncio.to_thread(_read, self._location.url)
            self._keys = read_keys(text)
        except (OSError, ValueError) as error:
            log.error("the keys at %s stay as they were: %s", self._location.url, error)

    def _reading_ended(self, task: "asyncio.Task[None]") -> None:
        self._reading = None

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


def _read(url: str) -> str:
    """Raises OSError and ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        data = Path(unquote(parts.path)).read_bytes()
    else:
        data = _download(url)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"more than {_BYTES_MAX} bytes")
    return data.decode()


def _download(url: str) -> bytes:
    # Imported here: a start without it is faster.
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Only the address that is allowed is asked."""

        def redirect_request(self, *_: object) -> None:
            return None

    opener = urllib.request.build_opener(NoRedirects)
    with opener.open(url, timeout=_READ_SECONDS_MAX) as answer:
        data: bytes = answer.read(_BYTES_MAX + 1)
    return data
