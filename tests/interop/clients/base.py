"""What the test bodies ask of a client. Each client answers in its own way."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

# Largest record of the tests is 5 MB; every client's own limit is raised above it.
REQUEST_BYTES_MAX = 20_000_000
WAIT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Message:
    """A record as the application sees it; a received one has an offset."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    offset: int | None = field(default=None, compare=False)


class Refused(Exception):
    """The broker answered with an error; the text holds the client's name for it."""


class Client(ABC):
    # kafka-python refuses a header without a value before it sends anything.
    sends_null_headers = True
    name: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def close(self) -> None:
        """Release what the client holds; most hold nothing between calls."""

    @abstractmethod
    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        """Send to partition 0 with acks=all and return the offsets, in order."""

    @abstractmethod
    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        """Read `count` records of partition 0 from `offset`, None for the beginning."""

    @abstractmethod
    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        """The first offset whose record is at or after this time."""


class AdminClient(Client):
    """A client that can also administer; kcat cannot."""

    @abstractmethod
    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def topic_names(self) -> set[str]: ...

    @abstractmethod
    def partition_count(self, topic: str) -> int: ...

    @abstractmethod
    def topic_configs(self, topic: str) -> dict[str, str]: ...

    @abstractmethod
    def set_config(self, topic: str, *, name: str, value: str) -> None: ...

    @abstractmethod
    def add_partitions(self, topic: str, *, total: int) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, *, before_offset: int) -> int:
        """Move the log start of partition 0 and return the new low watermark."""

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...
