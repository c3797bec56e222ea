"""The subject of a certificate, as Java writes it (RFC 2253: the most specific part first)."""

from collections.abc import Iterator
from typing import Final

# Java writes these by name and every other attribute by its number, its value in hexadecimal.
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
# Tags of ASN.1.
_VERSION: Final = 0xA0
# UTF8, Printable, Teletex, IA5, General, Universal and BMP strings. Java reads all as UTF-8.
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate (DER), in the text of Java's X500Principal.getName()."""
    _, body, _ = _element(certificate, 0)
    _, body, _ = _element(body, 0)
    fields = list(_elements(body))
    if fields[0][0] == _VERSION:
        del fields[0]
    # Serial number, signature algorithm, issuer, validity, subject.
    parts = [part for _, part in _elements(fields[4][1])]
    return ",".join(
        "+".join(_attribute(pair) for _, pair in _elements(part)) for part in reversed(parts)
    )


def _attribute(pair: bytes) -> str:
    (_, number), (tag, value) = _elements(pair)
    name = _NAMES.get(_dotted(number))
    if name is None or tag not in _STRINGS:
        raw = pair[len(pair) - _whole_length(value) :]
        return f"{name or _dotted(number)}=#{raw.hex()}"
    return f"{name}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    characters = []
    first, last = len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r"))
    for position, character in enumerate(text):
        if character == "\0":
            characters.append("\\00")
            continue
        if character in _ESCAPED or not first <= position < last:
            characters.append("\\")
        characters.append(character)
    return "".join(characters)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        tag, value, position = _element(data, position)
        yield tag, value


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, value, and where the next element begins. OpenSSL has checked the certificate."""
    tag, length = data[position], data[position + 1]
    position += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    return tag, data[position : position + length], position + length


def _whole_length(value: bytes) -> int:
    """Of an element with this value, its tag and length included."""
    size = len(value)
    return size + 2 if size < 0x80 else size + 2 + (size.bit_length() + 7) // 8


def _dotted(number: bytes) -> str:
    parts: list[int] = []
    value = 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(value)
            value = 0
    top = min(parts[0] // 40, 2)
    return ".".join(str(part) for part in (top, parts[0] - 40 * top, *parts[1:]))
