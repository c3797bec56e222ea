import pytest

from millstream.config.option import Kind, Option, Status, format_value, parse_value
from millstream.errors import ConfigError


def option(kind, **traits):
    return Option("some.option", kind, None, "A sentence.", **traits)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, "true", True),
        (Kind.BOOLEAN, " FALSE ", False),
        (Kind.INT, "-1", -1),
        (Kind.INT, " 2147483647", 2**31 - 1),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.SHORT, "32767", 32767),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.LIST, "a, b ,c", ("a", "b", "c")),
        (Kind.LIST, "", ()),
        (Kind.STRING, " text ", "text"),
        (Kind.PASSWORD, "secret", "secret"),
    ],
)
def test_texts_become_typed_values(kind, text, value):
    assert parse_value(option(kind), text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "1.5"),
        (Kind.INT, "1_000"),
        (Kind.INT, ""),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "9223372036854775808"),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "much"),
    ],
)
def test_a_text_of_the_wrong_type_is_refused_in_one_line(kind, text):
    with pytest.raises(ConfigError) as caught:
        parse_value(option(kind), text)
    assert str(caught.value).startswith("some.option: ")
    assert "\n" not in str(caught.value)


def test_bounds_are_included():
    bounded = option(Kind.INT, minimum=1, maximum=9)
    assert [parse_value(bounded, text) for text in ("1", "9")] == [1, 9]
    for text in ("0", "10"):
        with pytest.raises(ConfigError):
            parse_value(bounded, text)


def test_choices_hold_for_each_item_of_a_list():
    policies = option(Kind.LIST, choices=("compact", "delete"))
    assert parse_value(policies, "compact,delete") == ("compact", "delete")
    with pytest.raises(ConfigError, match="compact, delete"):
        parse_value(policies, "compact,shred")


def test_values_are_written_as_kafka_writes_them():
    values = [None, True, 5, 0.5, ("a", "b"), "text"]
    assert [format_value(value) for value in values] == [None, "true", "5", "0.5", "a,b", "text"]


def test_the_documentation_says_what_has_no_effect():
    assert option(Kind.INT, status=Status.WORKS).documentation == "A sentence."
    assert option(Kind.INT).documentation == "A sentence. Here: accepted, no effect."
    refused = option(Kind.INT, status=Status.REFUSED, reason="it is not built yet")
    expected = "A sentence. Here: refused, because it is not built yet."
    assert refused.documentation == expected
