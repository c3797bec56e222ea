"""Protobuf schemas: text, or a descriptor in base64 as clients in Python and Go send it.

protobuf's own descriptor pool checks every schema, together with those that it imports. The files
that come with protobuf can be imported without being registered.
"""

import base64
import binascii
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from millstream.registry.formats.proto_printing import default_json_name, print_proto
from millstream.registry.formats.proto_text import read_proto
from millstream.registry.formats.text import Dependency, InvalidSchema

_NAME: Final = "default.proto"
# Of protobuf itself; and of googleapis-common-protos, where that is installed.
_WELL_KNOWN: Final = ("google/protobuf/", "google/type/")


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    text: str
    file: FileDescriptor

    def serialized(self) -> str:
        """The descriptor in base64: what `format=serialized` asks for."""
        return base64.b64encode(_copied(self.file).SerializeToString()).decode()


def parse_protobuf(text: str, dependencies: Sequence[Dependency] = ()) -> ProtobufSchema:
    """Each dependency stands behind those that it imports. Raises InvalidSchema."""
    given = _read(text)
    names = {one.name for one in dependencies}
    given.name = _NAME if _NAME not in names else f"of_{len(names)}_{_NAME}"
    pool = _pool_of(dependencies)
    _add_well_known(pool, given, names)
    _add(pool, given)
    file = pool.FindFileByName(given.name)
    printed = print_proto(_copied(file))
    return ProtobufSchema(printed if _is_lossless(printed, given, file) else text, file)


def _read(text: str) -> descriptor_pb2.FileDescriptorProto:
    file = _decoded(text)
    return read_proto(text) if file is None else file


def _decoded(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """None for what is not base64, as no .proto file with a message is."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except DecodeError:
        return None
    file.ClearField("source_code_info")
    return file


def _pool_of(dependencies: Sequence[Dependency]) -> DescriptorPool:
    pool = DescriptorPool()
    names = {one.name for one in dependencies}
    for one in dependencies:
        file = _read(one.text)
        file.name = one.name
        _add_well_known(pool, file, names)
        _add(pool, file)
    return pool


def _add(pool: DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as wrong:
        reason = str(wrong).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise InvalidSchema(f"protobuf refuses it: {reason}") from None


def _add_well_known(
    pool: DescriptorPool, file: descriptor_pb2.FileDescriptorProto, given: set[str]
) -> None:
    for name in file.dependency:
        if name in given or _is_in(pool, name):
            continue
        known = _well_known(name)
        if known is None:
            raise InvalidSchema(
                f"import {name!r} is unknown. Name the schema it stands for in references"
            )
        _add_well_known(pool, known, given)
        if not _is_in(pool, name):
            _add(pool, known)


def _is_in(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _well_known(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    stem = name.removesuffix(".proto")
    is_plain = stem.replace("/", "").replace("_", "").isalnum() and stem.isascii()
    if not name.startswith(_WELL_KNOWN) or stem == name or not is_plain:
        return None
    try:
        module = importlib.import_module(f"{stem.replace('/', '.')}_pb2")
    except ImportError:
        return None
    return _copied(module.DESCRIPTOR)


def _copied(file: FileDescriptor) -> descriptor_pb2.FileDescriptorProto:
    copied = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copied)
    return copied


def _is_lossless(
    printed: str, given: descriptor_pb2.FileDescriptorProto, file: FileDescriptor
) -> bool:
    """Does the text say all that the descriptor does? Options of a descriptor that belong to
    extensions are only numbers there, so such a schema stays in base64."""
    again = read_proto(printed)
    again.name = given.name
    pool = DescriptorPool()
    for one in _imported(file):
        if not _is_in(pool, one.name):
            pool.AddSerializedFile(one.serialized_pb)
    try:
        pool.AddSerializedFile(again.SerializeToString())
    except TypeError:
        return False
    ours, theirs = _copied(pool.FindFileByName(given.name)), _copied(file)
    return _comparable(ours) == _comparable(theirs)


def _imported(file: FileDescriptor) -> list[FileDescriptor]:
    """All of them, each behind those that it imports."""
    found: dict[str, FileDescriptor] = {}

    def add(files: Sequence[FileDescriptor]) -> None:
        for one in files:
            if one.name not in found:
                add(one.dependencies)
                found[one.name] = one

    add(file.dependencies)
    return list(found.values())


def _comparable(file: descriptor_pb2.FileDescriptorProto) -> bytes:
    if file.syntax == "proto2":
        file.ClearField("syntax")
    for message in file.message_type:
        _clear_default_json_names(message)
    data: bytes = file.SerializeToString(deterministic=True)
    return data


def _clear_default_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.json_name == default_json_name(field.name):
            field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_default_json_names(nested)
