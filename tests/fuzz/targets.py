"""What reads bytes that somebody else wrote, as functions of those bytes.

A target returns, or raises one of the errors that it promises. Anything else is a finding:
another exception, a crash, two implementations that disagree, a batch that is accepted and
cannot be read.
"""

import struct
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from crc32c import crc32c

from millstream.broker.network.partial_frame import frame_size
from millstream.broker.requests import produced_batches
from millstream.broker.requests.routes import served_api, served_apis
from millstream.cluster.kraft import METADATA_DIRECTORY, read_kraft_metadata
from millstream.config.files import parse_properties as parse_option_file
from millstream.config.files import parse_toml
from millstream.coordinators.codecs import embedded, table, transactions
from millstream.coordinators.consumer.pattern import TopicPattern
from millstream.errors import KafkaError, ProtocolError, StartError
from millstream.model import Codec, TimestampType
from millstream.records import columns, walking
from millstream.records.batch import CRC_START, HEADER_BYTES, split_batches
from millstream.records.builder import build_batch
from millstream.records.compression import TooLarge, decompress
from millstream.records.records import Record, read_records
from millstream.records.unpacking import unpacked
from millstream.records.validation import check_produced, produced_batch
from millstream.security.sasl import jaas, oauthbearer, plain, scram
from millstream.security.sasl.outcome import AuthenticationFailed
from millstream.storage import checkpoints, layout
from millstream.storage.log import CorruptLog
from millstream.storage.producers import ProducerStates
from millstream.wire.codec import request_reader, response_reader, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import read_fetch_request
from millstream.wire.headers import read_request_header
from millstream.wire.offset_commit import read_offset_commit_request
from millstream.wire.otlp import read_metrics
from millstream.wire.produce import read_produce_request
from tests.storage.logs import (
    CRASHED,
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    make_batch_rules,
    make_log_config,
    open_log,
    read_all,
)
from tests.storage.memory_files import MemoryFileSystem
from tests.support.otlp import gauge, metric, metrics_data

_UNPACKED_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], object]
    # What it may raise.
    promised: tuple[type[Exception], ...]
    # Good input to begin with.
    seeds: Callable[[], Iterable[bytes]]

    def check(self, data: bytes) -> None:
        try:
            self.run(data)
        except self.promised:
            return


# -- frames and requests -------------------------------------------------------------------


def read_frames(data: bytes) -> None:
    """As a connection splits what arrives."""
    view, position = memoryview(data), 0
    while len(data) - position >= 4:
        size = frame_size(view, position, 1 << 20)
        if position + 4 + size > len(data):
            return
        read_any_request(bytes(view[position + 4 : position + 4 + size]))
        position += 4 + size


_READERS_BY_HAND: Final = {0: read_produce_request, 1: read_fetch_request}
_COMMIT_KEY: Final = 8


def read_any_request(data: bytes) -> None:
    cursor = Cursor(memoryview(data))
    header = read_request_header(cursor)
    api = served_api(header.api_key)
    if api is None or not api.min_listed <= header.version <= api.max_version:
        return
    if header.api_key in _READERS_BY_HAND:
        _READERS_BY_HAND[header.api_key](cursor, header.version)
    elif header.api_key == _COMMIT_KEY:
        read_offset_commit_request(cursor, header.version)
    else:
        request_reader(api.request, header.version)(cursor)


@cache
def request_seeds() -> list[bytes]:
    """The smallest request of each API and version: everything empty or zero."""
    found = []
    for api in served_apis():
        for version in range(api.min_listed, api.max_version + 1):
            header = struct.pack(">hhi", api.key, version, 7) + b"\0\3app"
            found.append(header + b"\0" * 64)
    return found


def read_any_response(data: bytes) -> None:
    """What a node sends to our own clients; what is read can be written again."""
    if len(data) < 2:
        return
    apis = list(served_apis())
    api = apis[data[0] % len(apis)]
    version = api.min_listed + data[1] % (api.max_version - api.min_listed + 1)
    cursor = Cursor(memoryview(data)[2:])
    message = response_reader(api.request, version)(cursor)
    response_writer(api.request, version)(bytearray(), message)


# -- batches -----------------------------------------------------------------------------


def with_good_checksum(data: bytes) -> bytes:
    """Otherwise nothing behind the checksum is ever reached."""
    if len(data) < HEADER_BYTES:
        return data
    fixed = bytearray(data)
    # Offsets are the node's own; none comes near the end of 64 bits.
    fixed[0] = 0
    fixed[8:12] = struct.pack(">i", len(data) - 12)
    fixed[16] = 2
    fixed[17:CRC_START] = crc32c(bytes(fixed[CRC_START:])).to_bytes(4, "big")
    return bytes(fixed)


def produce_batch(data: bytes) -> None:
    """What is accepted can be read, by both readers, and has as many records as it says."""
    data = with_good_checksum(data)
    found = produced_batch(memoryview(bytearray(data)))
    rules = make_batch_rules()
    check_produced(found, rules, NOW_MS, decoded_bytes_max=_UNPACKED_MAX)
    records = list(read_records(found, limit_bytes=_UNPACKED_MAX))
    if len(records) != found.record_count:
        raise AssertionError(f"{len(records)} of {found.record_count} records")
    columns.decode(data)


def walk_both_ways(data: bytes) -> None:
    """The compiled and the Python walk agree."""
    if len(data) < 4:
        return
    count, records = struct.unpack_from(">i", data)[0] % 1000, data[4:]
    arguments = (records, 0, len(records), count, 0, 0, -(2**62), 2**62, True)
    found = [each.walk_records(*arguments) for each in (walking.IMPLEMENTATION, walking.PURE)]
    if found[0] != found[1]:
        raise AssertionError(f"compiled {found[0]}, Python {found[1]}")
    times = [
        each.find_time(records, count, 0, 5, 0) for each in (walking.IMPLEMENTATION, walking.PURE)
    ]
    # Where the records cannot be read, the time means nothing.
    if times[0][:2] != times[1][:2] or (not times[0][0] and times[0] != times[1]):
        raise AssertionError(f"compiled {times[0]}, Python {times[1]}")


def columns_both_ways(data: bytes) -> None:
    """Both ways give the same columns, or both refuse."""
    data = with_good_checksum(data)
    found = []
    for implementation in (columns.IMPLEMENTATION, columns.PURE):
        try:
            found.append(columns.decode(data, implementation=implementation))
        except ValueError:
            found.append(None)
    if found[0] != found[1]:
        raise AssertionError(f"compiled {found[0]}, Python {found[1]}")


def compact_both_ways(data: bytes) -> None:
    """The maps of newest offsets by key agree, as far as both can read."""
    data = with_good_checksum(data)
    found = []
    for implementation in (columns.IMPLEMENTATION, columns.PURE):
        keys = implementation.KeyMap(100)
        position, stop = keys.add_batches(data, 0, 0)
        # What was added of a batch that cannot be read means nothing.
        found.append((position, stop, keys.count if position else 0))
    if found[0] != found[1]:
        raise AssertionError(f"compiled {found[0]}, Python {found[1]}")


def produced_both_ways(data: bytes) -> None:
    """The compiled and the Python pass find the same in a repeated produce: in any bytes behind
    what does not change, and in one batch with a good checksum."""
    before = bytes(range(12))
    for behind in (data, one_partition(with_good_checksum(data))):
        frame = memoryview(before + behind)
        found = [
            each.batches_of(frame, before)
            for each in (produced_batches.IMPLEMENTATION, produced_batches.PURE)
        ]
        if found[0] != found[1]:
            raise AssertionError(f"compiled {found[0]}, Python {found[1]}")


def one_partition(records: bytes) -> bytes:
    """The end of a produce, from the count of partitions on."""
    length, size = len(records) + 1, bytearray()
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return b"\2\0\0\0\0" + bytes([*size, length]) + records + b"\0\0\0"


def split(data: bytes) -> None:
    for _ in split_batches(memoryview(data)):
        pass


def unpack(data: bytes) -> None:
    if data:
        decompress(Codec(data[0] % 5), data[1:], limit_bytes=_UNPACKED_MAX)


def unpack_in_thread(data: bytes) -> None:
    """What a thread unpacks is what is unpacked on the loop, or both refuse."""
    if not data:
        return
    codec, packed = Codec(data[0] % 5), data[1:]
    found: list[bytes | None] = []
    try:
        found.append(bytes(decompress(codec, packed, limit_bytes=_UNPACKED_MAX)))
    except ValueError:
        found.append(None)
    try:
        with unpacked(codec, packed, limit_bytes=_UNPACKED_MAX) as records:
            found.append(bytes(records))
    except ValueError:
        found.append(None)
    if found[0] != found[1]:
        raise AssertionError(f"on the loop {found[0]!r}, in a thread {found[1]!r}")


def delivery_times_both_ways(data: bytes) -> None:
    """The compiled and the Python search for delivery times agree."""
    if len(data) < 4:
        return
    count, records = struct.unpack_from(">i", data)[0] % 1000, data[4:]
    names = (b"not-before", b"not-after")
    found = [
        each.find_delivery_times(records, count, *names)
        for each in (walking.IMPLEMENTATION, walking.PURE)
    ]
    if found[0] != found[1]:
        raise AssertionError(f"compiled {found[0]}, Python {found[1]}")


def timed_seeds() -> list[bytes]:
    """Records with the headers that a search looks for."""
    headers = [("not-before", b"12"), ("other", b""), ("not-after", b"-5")]
    records = [Record(n, n, b"k", b"v", headers[n:]) for n in range(3)]
    found = build_batch(
        records, base_offset=0, codec=Codec.NONE, timestamp_type=TimestampType.CREATE_TIME
    )
    return [struct.pack(">i", 3) + bytes(found[HEADER_BYTES:])]


def batch_seeds() -> list[bytes]:
    return [
        bytes(batch(count, codec=codec, key=key))
        for count in (1, 3)
        for codec in Codec
        for key in (None, b"key")
    ]


def unpack_seeds() -> list[bytes]:
    from millstream.records.compression import compress

    return [bytes([codec]) + compress(codec, b"value" * 20) for codec in Codec]


# -- patterns and options ------------------------------------------------------------------


def match_pattern(data: bytes) -> None:
    TopicPattern(data.decode("utf-8", "replace")).matches("orders.eu-1_2")


def read_options(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_option_file(text)
    try:
        parse_toml(text)
    except ValueError:
        return


# -- what is on the disk and in the coordination store ---------------------------------------


def read_small_files(data: bytes) -> None:
    for read in (
        checkpoints.parse_offsets,
        checkpoints.parse_epochs,
        checkpoints.parse_properties,
        checkpoints.parse_partition_metadata,
        lambda data: ProducerStates.decode(data, next_offset=5),
        lambda data: layout.parse_segment_file(data.decode("utf-8", "replace")),
        lambda data: layout.parse_directory(data.decode("utf-8", "replace")),
    ):
        try:
            read(data)
        except ValueError:
            continue


def recover(data: bytes) -> None:
    """Any bytes as the log and its indexes after a crash: what is left is readable."""
    if len(data) < 2:
        return
    files = MemoryFileSystem()
    log = open_log(files, make_log_config(index_interval_bytes=150))
    for _ in range(3):
        append(log, batch(2))
    log.close()
    paths = [path for path in files.paths() if path.startswith(f"{DIRECTORY}/")]
    path = paths[data[0] % len(paths)]
    place = data[1] % (len(files.data(path)) + 1)
    files.data(path)[place:] = data[2:]
    read_all(open_log(files, make_log_config(index_interval_bytes=150), CRASHED))


def read_internal_records(data: bytes) -> None:
    if not data:
        return
    cut = data[0] % len(data)
    key, value = data[1 : 1 + cut], data[1 + cut :]
    for read in (table.decode, transactions.decode):
        try:
            read(key, value)
        except ValueError:
            continue
    for read_embedded in (embedded.decode_subscription, embedded.decode_assignment):
        try:
            read_embedded(data)
        except ValueError:
            continue


def adopt_metadata(data: bytes) -> None:
    """Bytes as a record in the metadata log of a directory that Kafka wrote."""
    records = build_batch([Record(0, NOW_MS, None, data)], base_offset=0)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name) / METADATA_DIRECTORY
        folder.mkdir()
        (folder / f"{0:020d}.log").write_bytes(records)
        read_kraft_metadata(Path(name))


# -- logins --------------------------------------------------------------------------------


def log_in(data: bytes) -> None:
    for read in (scram.read_client_first, plain.read_plain, oauthbearer.read_initial):
        try:
            read(data)
        except AuthenticationFailed:
            continue
    for read_text in (scram.decode_credential, jaas.parse_jaas, plain.read_users):
        try:
            read_text(data.decode("utf-8", "replace"))
        except (ValueError, StartError):
            continue


TARGETS: Final[dict[str, Target]] = {
    "frames": Target(
        read_frames,
        (ProtocolError,),
        lambda: [struct.pack(">i", len(each)) + each for each in request_seeds()[::7]],
    ),
    "requests": Target(read_any_request, (ProtocolError,), request_seeds),
    "responses": Target(
        read_any_response, (ProtocolError,), lambda: [bytes(64), b"\x05\x09" + bytes(100)]
    ),
    "batches": Target(produce_batch, (KafkaError,), batch_seeds),
    "walk": Target(
        walk_both_ways, (), lambda: [b"\0\0\0\1" + each[HEADER_BYTES:] for each in batch_seeds()]
    ),
    "columns": Target(columns_both_ways, (), batch_seeds),
    "compaction": Target(compact_both_ways, (ValueError,), batch_seeds),
    "produced": Target(
        produced_both_ways, (), lambda: [*batch_seeds(), *map(one_partition, batch_seeds())]
    ),
    "split": Target(split, (ValueError,), batch_seeds),
    "codecs": Target(unpack, (ValueError, TooLarge), unpack_seeds),
    "unpacking": Target(unpack_in_thread, (), unpack_seeds),
    "delivery_times": Target(delivery_times_both_ways, (), timed_seeds),
    "patterns": Target(
        match_pattern, (KafkaError,), lambda: [b"orders.*", b"[a-z]{3,}", b"(a|b)+"]
    ),
    "options": Target(
        read_options, (StartError, ValueError), lambda: [b"a=b\n# c\nlisteners=x", b"[a]\nb=1"]
    ),
    "small_files": Target(
        read_small_files,
        (),
        lambda: [b"0\n1\nt 0 5\n", b"0\n1\n0 0\n", b"version: 0\ntopic_id: AAAA", b"00000000.log"],
    ),
    "recovery": Target(recover, (CorruptLog,), lambda: [b"\0\0" + each for each in batch_seeds()]),
    "internal_records": Target(
        read_internal_records, (), lambda: [b"\x0a\0\1\0\1g\0\1t\0\0\0\0" + bytes(40)]
    ),
    "kafka_metadata": Target(
        adopt_metadata, (StartError,), lambda: [bytes([1, kind]) + bytes(60) for kind in range(24)]
    ),
    "telemetry": Target(
        read_metrics,
        (ValueError,),
        lambda: [metrics_data(gauge("m", 1.0, topic="t")), metrics_data(metric("h", 9, bytes(9)))],
    ),
    "logins": Target(
        log_in, (), lambda: [b"n,,n=user,r=nonce", b"\0user\0password", b"n,,\1auth=Bearer x\1\1"]
    ),
}
