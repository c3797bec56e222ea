import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.encoding import Reader, Writer


def written(method: str, value: object) -> bytes:
    writer = Writer()
    getattr(writer, method)(value)
    return writer.getvalue()


VALUES = {
    "boolean": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "unsigned_varint": st.integers(0, 2**32 - 1),
    "varint": st.integers(-(2**31), 2**31 - 1),
    "varlong": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(max_size=100),
    "nullable_string": st.none() | st.text(max_size=100),
    "bytes": st.binary(max_size=100),
    "compact_string": st.text(max_size=200),
    "compact_nullable_string": st.none() | st.text(max_size=200),
    "compact_bytes": st.binary(max_size=200),
    "tagged_fields": st.dictionaries(st.integers(0, 1000), st.binary(max_size=20), max_size=5),
}


@pytest.mark.parametrize("method", VALUES)
def test_what_is_written_is_read_again_and_no_shorter_text_is(method):
    @given(VALUES[method])
    def check(value):
        data = written(method, value)
        reader = Reader(data)
        assert getattr(reader, method)() == value
        assert reader.remaining_bytes == 0
        with pytest.raises(ValueError):
            getattr(Reader(data[:-1]), method)()

    check()


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("unsigned_varint", 300, b"\xac\x02"),
        ("varint", -1, b"\x01"),
        ("varint", 1, b"\x02"),
        ("varlong", -(2**63), b"\xff" * 9 + b"\x01"),
        ("string", "é", b"\x00\x02\xc3\xa9"),
        ("nullable_string", None, b"\xff\xff"),
        ("compact_string", "", b"\x01"),
        ("compact_nullable_string", None, b"\x00"),
        ("compact_array_length", None, b"\x00"),
        ("compact_array_length", 2, b"\x03"),
        ("array_length", None, b"\xff\xff\xff\xff"),
        ("tagged_fields", None, b"\x00"),
        ("tagged_fields", {2: b"b", 0: b"a"}, b"\x02\x00\x01a\x02\x01b"),
        ("uuid", uuid.UUID(int=1), b"\x00" * 15 + b"\x01"),
    ],
)
def test_the_bytes_are_those_of_kafka(method, value, expected):
    assert written(method, value) == expected


@pytest.mark.parametrize(
    ("method", "value"),
    [("int8", 128), ("int32", 2**31), ("varint", 2**31), ("unsigned_varint", -1), ("int64", 2**63)],
)
def test_a_number_that_does_not_fit_is_not_written(method, value):
    with pytest.raises(ValueError):
        written(method, value)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("unsigned_varint", b"\xff\xff\xff\xff\xff\x01"),
        ("unsigned_varint", b"\xff\xff\xff\xff\x7f"),
        ("varlong", b"\xff" * 11),
        ("string", b"\xff\xff"),
        ("string", b"\x00\x01\xff"),
        ("compact_string", b"\x00"),
        ("compact_bytes", b"\x00"),
        ("bytes", b"\xff\xff\xff\xff"),
        ("array_length", b"\x00\x00\x00\x05abcd"),
        ("array_length", b"\xff\xff\xff\xfe"),
        ("compact_array_length", b"\xff\xff\xff\xff\x0f"),
        ("tagged_fields", b"\x01\x00\x05abc"),
    ],
)
def test_data_that_lies_is_refused(method, data):
    with pytest.raises(ValueError):
        getattr(Reader(data), method)()


@given(st.binary(max_size=60), st.sampled_from([*VALUES, "array_length", "compact_array_length"]))
def test_garbage_raises_nothing_but_value_error(data, method):
    reader = Reader(data)
    try:
        getattr(reader, method)()
    except ValueError:
        return
    assert 0 <= reader.position <= len(data)


def test_array_lengths_are_read_as_counts_or_none():
    assert Reader(b"\x00\x00\x00\x02ab").array_length() == 2
    assert Reader(b"\xff\xff\xff\xff").array_length() is None
    assert Reader(b"\x03ab").compact_array_length() == 2
    assert Reader(b"\x00").compact_array_length() is None
