"""The small text files beside the logs, in Kafka's formats.

A checkpoint is a version line, a count line and one line per entry. A file that cannot be
parsed counts as absent and is rebuilt: `parse_*` raises ValueError, the caller decides.
"""

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence

from millstream.model import TopicPartition, topic_name_problem
from millstream.storage.files import FileSystem, read_file, write_file

_OFFSETS_VERSION = 0


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{where.topic} {where.partition} {offset}" for where, offset in offsets.items()]
    return _format_lines(lines)


def parse_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in _parse_lines(data):
        topic, partition, offset = line.split(" ")
        if topic_name_problem(topic) is not None:
            raise ValueError(f"checkpoint names an impossible topic {topic!r}")
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return _format_lines([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for line in _parse_lines(data):
        epoch, start_offset = line.split(" ")
        entry = (int(epoch), int(start_offset))
        if entries and (entry[0] <= entries[-1][0] or entry[1] < entries[-1][1]):
            raise ValueError(f"leader epochs are out of order at {line!r}")
        entries.append(entry)
    return entries


def _format_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_OFFSETS_VERSION, len(lines), *lines)).encode()


def _parse_lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8").split("\n")
    if lines.pop() != "":
        # Cut inside its last line, which would read as a smaller number.
        raise ValueError("checkpoint does not end with a whole line")
    if len(lines) < 2 or lines[0] != str(_OFFSETS_VERSION):
        raise ValueError("not a checkpoint of version 0")
    if int(lines[1]) != len(lines) - 2:
        raise ValueError(f"checkpoint says {lines[1]} lines and has {len(lines) - 2}")
    return lines[2:]


def read_offsets(file_system: FileSystem, path: str) -> dict[TopicPartition, int] | None:
    """None if the file is missing or damaged: the caller falls back to the log."""
    data = read_file(file_system, path)
    if data is None:
        return None
    try:
        return parse_offsets(data)
    except ValueError:
        return None


def write_offsets(
    file_system: FileSystem, path: str, offsets: Mapping[TopicPartition, int], *, number: int = 0
) -> None:
    """`number` keeps two writers of the same file apart."""
    temporary = f"{path}.{number % 2}.tmp"
    write_file(file_system, path, format_offsets(offsets), is_synced=True, temporary=temporary)


def format_properties(values: Mapping[str, str]) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in values.items()).encode()


def parse_properties(data: bytes) -> dict[str, str]:
    """The part of Java's format that these files use: `key=value` lines, `#` comments."""
    values: dict[str, str] = {}
    for line in data.decode("utf-8").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            key, _, value = text.partition("=")
            values[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return values


def format_uuid(value: uuid.UUID) -> str:
    """Kafka's text form of an id: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def parse_uuid(text: str) -> uuid.UUID:
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(data) != 16:
        raise ValueError(f"{text!r} is not an id")
    return uuid.UUID(bytes=data)


def format_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> uuid.UUID:
    fields: dict[str, str] = {}
    for line in data.decode("utf-8").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0" or "topic_id" not in fields:
        raise ValueError("partition.metadata is not of version 0")
    return parse_uuid(fields["topic_id"])
