"""Writes the parts of OTLP that tests need."""

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<q", value)


def label(number: int, name: str, text: str) -> bytes:
    value = message(1, text.encode())
    return message(number, message(1, name.encode()) + message(2, value))


def gauge(name: str, value: float, **labels: str) -> bytes:
    point = double(4, value) + b"".join(label(7, key, text) for key, text in labels.items())
    return metric(name, 5, message(1, point))


def metric(name: str, number: int, data: bytes) -> bytes:
    return message(1, name.encode()) + message(3, b"ms") + message(number, data)


def metrics_data(*metrics: bytes) -> bytes:
    scope = b"".join(message(2, each) for each in metrics)
    return message(1, message(1, b"") + message(2, scope))
