"""Request and response headers, and the size before every frame."""

import struct
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.wire import output
from millstream.wire.apis import declared_api
from millstream.wire.cursor import Cursor
from millstream.wire.message import APIS

SIZE_BYTES: Final = 4
_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_RESPONSE = struct.Struct(">ii")
_RESPONSE_FLEXIBLE = struct.Struct(">iib")


@dataclass(slots=True)
class RequestHeader:
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None


def read_request_header(cursor: Cursor) -> RequestHeader:
    """The header of a request; for an unknown API or version, only its fixed part."""
    api_key, version, correlation_id = cursor.unpack(_REQUEST)
    api = APIS.get(api_key) or declared_api(api_key)
    if api is None or version > api.max_version or version < 0:
        return RequestHeader(api_key, version, correlation_id, None)
    client_id = cursor.nullable_string()
    if version >= api.flexible_from:
        cursor.skip_tags()
    return RequestHeader(api_key, version, correlation_id, client_id)


def write_request_header(out: bytearray, header: RequestHeader) -> None:
    """Header v1 or v2, without the size."""
    out += _REQUEST.pack(header.api_key, header.version, header.correlation_id)
    output.nullable_string(out, header.client_id)
    if APIS[header.api_key].is_flexible(header.version):
        out.append(0)


def response_header(header: RequestHeader) -> bytearray:
    """The start of a response: four bytes for the size, then the header."""
    if header.version >= APIS[header.api_key].response_tags_from:
        return bytearray(_RESPONSE_FLEXIBLE.pack(0, header.correlation_id, 0))
    return bytearray(_RESPONSE.pack(0, header.correlation_id))


def finish_frame(out: bytearray, extra_bytes: int = 0) -> bytearray:
    """Fill in the size; `extra_bytes` follow that are not in `out` (file ranges)."""
    _SIZE.pack_into(out, 0, len(out) - SIZE_BYTES + extra_bytes)
    return out
