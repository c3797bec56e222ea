"""Both passes find the same batches in any frame, and call none whole that may be refused."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as some

from bench.frames import produce_load
from millstream.broker.requests.produced_batches import COMPILED, PURE, Implementation
from millstream.errors import KafkaError
from millstream.model import Codec
from millstream.records.batch import CRC_START, HEADER_BYTES
from millstream.records.builder import build_batch
from millstream.records.checksum import crc32c
from millstream.records.records import Record
from millstream.records.validation import checked_batch, checked_whole_batch
from tests.storage.logs import NOW_MS, make_batch_rules

IMPLEMENTATIONS = [PURE, *([COMPILED] if COMPILED is not None else [])]
SIZE_BYTES = 4


@pytest.fixture(params=IMPLEMENTATIONS, ids=lambda each: each.NAME)
def implementation(request: pytest.FixtureRequest) -> Implementation:
    found: Implementation = request.param
    return found


def batch(
    *times: int, producer_id: int = 7, base_sequence: int = 0, codec: Codec = Codec.NONE
) -> bytearray:
    """A batch with a record at each of the times."""
    records = [Record(i, at_ms, b"k", b"v", []) for i, at_ms in enumerate(times or (NOW_MS,))]
    return build_batch(
        records,
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=base_sequence,
    )


def frame(*batches: bytes, correlation_id: int = 1) -> bytearray:
    """The same request to partitions 3, 4, and so on."""
    [whole] = produce_load("topic", [batches[0]], acks=-1, partitions=[3]).frames
    before = whole[SIZE_BYTES : len(whole) - len(one(3, batches[0])) - 3]
    data = bytearray(before + bytes([len(batches) + 1]))
    for number, each in enumerate(batches):
        data += one(3 + number, each)
    struct.pack_into(">i", data, 4, correlation_id)
    return data + b"\0\0"


def one(index: int, data: bytes) -> bytes:
    length, size = len(data) + 1, bytearray()
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return struct.pack(">i", index) + bytes([*size, length]) + data + b"\0"


BEFORE = bytes(frame(batch())[: -len(one(3, batch())) - 3])


def found_in(data: bytes, implementation: Implementation) -> list[tuple[int, bytes, bool]] | None:
    found = implementation.batches_of(memoryview(data), BEFORE)
    return found and [(index, bytes(records), is_whole) for index, records, is_whole in found]


def changed(data: bytearray, change: Callable[[bytearray], None]) -> bytearray:
    """The batch with other bytes, and a checksum for them."""
    change(data)
    struct.pack_into(">I", data, 17, crc32c(data[CRC_START:]))
    return data


def test_both_are_tried() -> None:
    assert COMPILED is not None, "the compiled pass is missing: pip install -e . with a compiler"


def test_each_partition_is_found_with_its_batch(implementation: Implementation) -> None:
    batches = [bytes(batch(*[NOW_MS] * count)) for count in (1, 20, 3000)]
    data = frame(*batches, correlation_id=-9)
    assert found_in(data, implementation) == [
        (3 + number, each, True) for number, each in enumerate(batches)
    ]


@pytest.mark.parametrize(
    "data",
    [
        batch(codec=Codec.LZ4),
        batch(base_sequence=-1),
        changed(batch(), lambda data: data.__setitem__(22, 0x10)),
        # The newest record is newer or older than the header says, or has a negative timestamp.
        changed(batch(), lambda data: struct.pack_into(">q", data, 35, NOW_MS - 1)),
        changed(batch(NOW_MS, 5), lambda data: struct.pack_into(">q", data, 35, NOW_MS + 1)),
        changed(batch(-1), lambda data: struct.pack_into(">q", data, 35, 2**63 - 1)),
        batch(-2, NOW_MS),
        changed(batch(), lambda data: struct.pack_into(">qq", data, 27, -1, -2)),
        changed(batch(), lambda data: data.__setitem__(HEADER_BYTES + 3, 9)),
        # Without a new checksum.
        batch()[:-1] + b"\1",
        b"x",
    ],
)
def test_what_is_not_whole_is_found_and_left_to_the_other_checks(
    data: bytes, implementation: Implementation
) -> None:
    assert found_in(frame(data), implementation) == [(3, bytes(data), False)]


@pytest.mark.parametrize("times", [(NOW_MS,), (-1,), (0, NOW_MS), (NOW_MS, 5)])
def test_whole_batches_have_any_timestamps(
    times: tuple[int, ...], implementation: Implementation
) -> None:
    assert found_in(frame(batch(*times)), implementation) == [(3, bytes(batch(*times)), True)]


@pytest.mark.parametrize(
    "cut",
    [slice(0, 0), slice(0, 8), slice(0, len(BEFORE)), slice(0, len(BEFORE) + 1), slice(0, -1)],
)
def test_a_frame_that_ends_early_is_another_request(
    cut: slice, implementation: Implementation
) -> None:
    assert found_in(frame(batch())[cut], implementation) is None


def test_a_frame_with_other_bytes_before_the_partitions_is_another_request(
    implementation: Implementation,
) -> None:
    for at in range(len(BEFORE)):
        data = frame(batch())
        data[at] ^= 1
        assert (found_in(data, implementation) is None) == (not 4 <= at < 8)


bytes_of_batches = some.one_of(
    some.binary(min_size=1, max_size=80),
    some.builds(
        batch,
        some.integers(-3, NOW_MS + 10),
        some.integers(-3, NOW_MS + 10),
        producer_id=some.sampled_from([-1, 7]),
        base_sequence=some.integers(-1, 2),
    ).map(bytes),
)


@given(
    batches=some.lists(bytes_of_batches, min_size=1, max_size=4),
    changes=some.lists(some.tuples(some.integers(0, 600), some.integers(0, 255)), max_size=3),
    cut=some.integers(0, 3),
)
def test_both_find_the_same_in_any_bytes(
    batches: list[bytes], changes: list[tuple[int, int]], cut: int
) -> None:
    data = frame(*batches)
    for at, byte in changes:
        data[at % len(data)] = byte
    del data[len(data) - cut :]
    found = [found_in(data, each) for each in IMPLEMENTATIONS]
    assert found[0] == found[-1]


@given(
    times=some.lists(some.integers(-2, NOW_MS + 10), min_size=1, max_size=3),
    before_ms=some.sampled_from([5, NOW_MS, 2**63 - 1]),
    after_ms=some.sampled_from([0, 5, 2**62]),
    bytes_max=some.sampled_from([70, 1000]),
    needs_key=some.booleans(),
)
def test_a_whole_batch_is_taken_only_if_every_check_would_take_it(
    times: list[int], before_ms: int, after_ms: int, bytes_max: int, needs_key: bool
) -> None:
    rules = make_batch_rules(
        message_bytes_max=bytes_max,
        timestamp_before_max_ms=before_ms,
        timestamp_after_max_ms=after_ms,
        is_key_required=needs_key,
    )
    data = memoryview(batch(*times))
    [(_, _, is_whole)] = IMPLEMENTATIONS[-1].batches_of(memoryview(frame(data)), BEFORE) or []
    if not is_whole or checked_whole_batch(data, rules, NOW_MS) is None:
        return
    with suppress(KafkaError):
        checked_batch(data, rules, NOW_MS, decoded_bytes_max=0)
        return
    pytest.fail("a batch was taken that the checks refuse")
