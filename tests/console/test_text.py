import pytest

from millstream.console.text import (
    format_bytes,
    format_count,
    format_duration,
    format_figure,
    format_rate,
    format_time,
    hex_dump,
    show,
    visible,
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b'{"a": ', "text", '{"a": '),
        (b"\xff\xfe", "hex", "ff fe"),
        ("é".encode(), "text", "é"),
        (b"a\x00b\x1b[31m", "text", "a\u2400b\u241b[31m"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, kind: str, text: str) -> None:
    shown = show(data)
    assert (shown.kind, shown.text) == (kind, text)


def test_long_values_are_cut_and_say_so() -> None:
    shown = show(b"x" * 5_000_000)
    assert len(shown.text) == 300
    assert shown.is_cut
    assert shown.size_bytes == 5_000_000


def test_a_cut_inside_a_character_is_no_binary_data() -> None:
    shown = show(("é" * 5000).encode(), characters_max=301)
    assert shown.kind == "text"
    assert set(shown.text) == {"é"}


def test_deeply_nested_json_is_text() -> None:
    assert show(b"[" * 50_000).kind == "text"


def test_as_hex_and_as_text() -> None:
    assert show(b"ab", as_="hex").text == "61 62"
    assert show(b"a\xff", as_="text").text == "a\ufffd"


def test_what_could_reorder_text_is_replaced() -> None:
    assert visible("a\u202eb") == "a\ufffdb"


def test_a_hex_dump_has_offset_bytes_and_letters() -> None:
    assert hex_dump(b"Kafka\x00", 16) == f"00000010  {'4b 61 66 6b 61 00':<47}  Kafka."


def test_numbers() -> None:
    assert [format_bytes(n) for n in (0, 999, 1500, 2_000_000, None)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "2.0 MB",
        "–",
    ]
    assert [format_count(n) for n in (12, 12_345, 1_234_567, 5e9)] == [
        "12",
        "12,345",
        "1.23 M",
        "5.00 G",
    ]
    assert [format_rate(n) for n in (0.0, 1.25, 250.0, None)] == ["0/s", "1.2/s", "250/s", "–"]


def test_durations_and_times() -> None:
    assert format_duration(500) == "500 ms"
    assert format_duration(90_061_000) == "1 d 1 h"
    assert format_duration(-1) == "unlimited"
    assert format_time(0) == "1970-01-01 00:00:00.000"
    assert format_time(2**62) == f"{2**62} ms"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (1234567, "1,234,567"),
        (12.0, "12"),
        (12.34567, "12.35"),
        (12345.678, "12,346"),
        (-0.0123456, "-0.01235"),
        (0.0000123, "1.23e-05"),
        (1e300, "1e+300"),
        (2**63, "9.223e+18"),
    ],
)
def test_measured_values_have_the_digits_that_count(value: float | None, text: str) -> None:
    assert format_figure(value) == text
