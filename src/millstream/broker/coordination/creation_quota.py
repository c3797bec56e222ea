"""How many groups, transactional ids and producer ids one client may begin, and how much metadata
it may commit with offsets.

Each of them takes memory and disk for days after its connection has closed, and a name costs its
inventor nothing. A client (a user at an address, or the address where nobody logs in) may begin
many at once, and then as many as it earns with time.
"""

from typing import Final

from millstream.errors import KafkaCode, KafkaError

AT_ONCE_MAX: Final = 20_000
# A longer name counts several times: it may have 32 KB, and is kept more than once.
_NAME_LENGTH: Final = 256
# So much metadata of committed offsets counts as one.
_METADATA_LENGTH: Final = 4_096
PER_SECOND: Final = 50
# Above this, clients that have earned back all that they used are forgotten.
_CLIENTS_KEPT: Final = 10_000


class CreationQuota:
    def __init__(self) -> None:
        # When each client will have earned back all that it used. Absent: it already has.
        self._earned_back_ms: dict[str, float] = {}

    def admit(self, client: str, name: str = "", *, now_ms: int) -> None:
        """Raises KafkaError where the client has begun too many. A producer id has no name."""
        self._take(client, max(len(name) / _NAME_LENGTH, 1), now_ms)

    def admit_metadata(self, client: str, length: int, *, now_ms: int) -> None:
        """Raises KafkaError where the client has no room for so much more of it."""
        self._take(client, length / _METADATA_LENGTH, now_ms)

    def _take(self, client: str, count: float, now_ms: int) -> None:
        each_ms = 1000 / PER_SECOND
        earned_back_ms = max(self._earned_back_ms.get(client, now_ms), now_ms) + count * each_ms
        if earned_back_ms - now_ms > AT_ONCE_MAX * each_ms:
            raise KafkaError(
                KafkaCode.THROTTLING_QUOTA_EXCEEDED,
                f"{client} has begun too many groups, transactional ids and producer ids, or has"
                f" committed too much metadata; {PER_SECOND} more are possible every second",
            )
        self._earned_back_ms[client] = earned_back_ms
        if len(self._earned_back_ms) > _CLIENTS_KEPT:
            self._forget(now_ms)

    def _forget(self, now_ms: int) -> None:
        self._earned_back_ms = {
            client: at_ms for client, at_ms in self._earned_back_ms.items() if at_ms > now_ms
        }
