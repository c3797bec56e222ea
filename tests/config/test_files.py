from pathlib import Path

import pytest

from millstream.config.files import parse_properties, parse_toml, read_option_file
from millstream.errors import ConfigError


def test_toml_tables_dotted_keys_and_quoted_keys_mean_the_same():
    nested = '[log.retention]\nms = 5\n[log]\ndirs = ["a", "b"]\n'
    dotted = 'log.retention.ms = 5\nlog.dirs = "a,b"\n'
    quoted = '"log.retention.ms" = "5"\n"log.dirs" = "a,b"\n'
    expected = {"log.retention.ms": "5", "log.dirs": "a,b"}
    assert parse_toml(nested) == parse_toml(dotted) == parse_toml(quoted) == expected


def test_toml_booleans_are_written_as_kafka_writes_them():
    assert parse_toml("auto.create.topics.enable = false") == {"auto.create.topics.enable": "false"}


def test_toml_dates_are_no_values():
    with pytest.raises(ConfigError, match=r"some\.day"):
        parse_toml("some.day = 2020-01-01")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a", {"a": ""}),
        ("  a = b\r\nc=d", {"a": "b", "c": "d"}),
        ("# note\n! note\n\na=b", {"a": "b"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\\\nb=c", {"a": "one\\", "b": "c"}),
        ("a=one\\\n# not a note", {"a": "one# not a note"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t\\n\\x", {"a": "é\t\nx"}),
        ("a=PLAINTEXT://:9092", {"a": "PLAINTEXT://:9092"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, expected):
    assert parse_properties(text) == expected


def test_a_broken_unicode_escape_is_an_error():
    with pytest.raises(ConfigError, match="hexadecimal"):
        parse_properties("a=\\u12")


def test_without_an_ending_both_syntaxes_are_tried(tmp_path: Path):
    file = tmp_path / "settings"
    file.write_text("listeners=PLAINTEXT://:9092\n")
    assert read_option_file(file) == {"listeners": "PLAINTEXT://:9092"}
    file.write_text("[log]\ndirs = 'data'\n")
    assert read_option_file(file) == {"log.dirs": "data"}


def test_a_file_in_latin_1_is_read_as_java_reads_it(tmp_path: Path):
    file = tmp_path / "server.properties"
    file.write_bytes(b"broker.rack=caf\xe9\n")
    assert read_option_file(file) == {"broker.rack": "café"}


def test_problems_name_the_file(tmp_path: Path):
    missing = tmp_path / "missing.properties"
    with pytest.raises(ConfigError, match=r"missing\.properties"):
        read_option_file(missing)
    broken = tmp_path / "broken.toml"
    broken.write_text("this is not TOML")
    with pytest.raises(ConfigError, match=r"broken\.toml"):
        read_option_file(broken)
