"""What type checkers and readers see of a declaration."""

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import ProtocolError
from millstream.wire.apis.heartbeat import HeartbeatRequest
from millstream.wire.apis.metadata import (
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from millstream.wire.codec import request_reader, request_writer, response_writer
from millstream.wire.cursor import Cursor
from millstream.wire.message import KeptArray

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def test_a_field_that_a_version_lacks_has_its_default_when_it_is_read() -> None:
    out = bytearray()
    request = HeartbeatRequest(
        group_id="g", generation_id=3, member_id="m", group_instance_id="static"
    )
    request_writer(HeartbeatRequest, 2)(out, request)
    assert request_reader(HeartbeatRequest, 2)(Cursor(memoryview(out))) == HEARTBEAT


def test_an_unknown_field_is_refused_when_a_message_is_built() -> None:
    with pytest.raises(TypeError, match="HeartbeatRequest has no field group"):
        HeartbeatRequest(group="g", generation_id=3, member_id="m")  # type: ignore[call-arg]


def test_a_forgotten_field_is_not_written_as_some_default() -> None:
    with pytest.raises(AttributeError):
        request_writer(HeartbeatRequest, 4)(
            bytearray(),
            HeartbeatRequest(group_id="g", member_id="m"),  # type: ignore[call-arg]
        )


def test_a_null_array_is_read_only_in_versions_that_have_one() -> None:
    null = Cursor(memoryview(b"\xff\xff\xff\xff"))
    assert request_reader(MetadataRequest, 1)(null).topics is None  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match="topics is null"):
        request_reader(MetadataRequest, 0)(Cursor(memoryview(b"\xff\xff\xff\xff")))


def test_messages_are_equal_by_their_fields() -> None:
    assert (
        HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id=None)
        == HEARTBEAT
    )
    assert HeartbeatRequest(group_id="g", generation_id=4, member_id="m") != HEARTBEAT
    assert "group_id='g'" in repr(HEARTBEAT)
    assert MetadataPartition != HEARTBEAT


WRONG = """
from millstream.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse

def misread(body: HeartbeatRequest) -> HeartbeatResponse:
    print(body.group)
    return HeartbeatResponse(error=body.group_id)

reveal_type(HeartbeatRequest(group_id="g", generation_id=3, member_id="m").group_instance_id)
"""


@pytest.mark.slow
def test_a_misspelt_field_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache")]
    found = subprocess.run([*mypy, str(tmp_path / "wrong.py")], capture_output=True, text=True)
    assert '"HeartbeatRequest" has no attribute "group"' in found.stdout
    assert 'Unexpected keyword argument "error"' in found.stdout
    assert 'Revealed type is "str | None"' in found.stdout


def test_a_kept_array_is_written_as_any_other_in_every_version() -> None:
    parts = [
        MetadataPartition(
            error_code=0,
            partition_index=index,
            leader_id=index % 2,
            leader_epoch=7,
            replica_nodes=[0, 1],
            isr_nodes=[index % 2],
            offline_replicas=[],
        )
        for index in range(200)
    ]
    kept = KeptArray(parts)

    def written(partitions: list[MetadataPartition], version: int) -> bytes:
        topic = MetadataTopic(error_code=0, name="t", partitions=partitions)
        out = bytearray()
        answer = MetadataResponse(brokers=[], topics=[topic])
        response_writer(MetadataRequest, version)(out, answer)
        return bytes(out)

    for version in [*range(14), *range(14)]:
        assert written(kept, version) == written(parts, version)


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_is_as_long_as_kafka_allows_at_most(version: int) -> None:
    out = bytearray()
    longest = HeartbeatRequest(group_id="g" * 32_767, generation_id=3, member_id="m")
    request_writer(HeartbeatRequest, version)(out, longest)
    assert request_reader(HeartbeatRequest, version)(Cursor(memoryview(out))) == longest
    with pytest.raises(ProtocolError, match="a string of 32768 bytes"):
        # As a varint, one is more than the size.
        Cursor(memoryview(b"\x81\x80\x02" + b"g" * 32_768)).compact_string()
