"""The messages of which templates are made."""

from millstream.pipeline.message_templates import _BATCH_LINES, messages_of
from tests.pipeline.conftest import MakeSpec

IN_2026_MS = 1_789_999_200_000


def test_a_line_that_cannot_be_parsed_is_a_message_itself(make_spec: MakeSpec) -> None:
    lines = [
        b"2026-09-21 13:59:58 INFO disk full",
        b"no time here",
        b'{"ts":1789999198,"status":200}',
        b"caf\xe9",
        None,
        b"",
    ]
    [messages] = messages_of(make_spec(), [(b"h/x", line, IN_2026_MS) for line in lines])
    assert messages.to_pylist() == ["disk full", "no time here", None, "caf\ufffd", None, None]


def test_messages_come_in_batches_in_their_order(make_spec: MakeSpec) -> None:
    count = _BATCH_LINES + 1
    records = ((None, b"line %d" % at, IN_2026_MS) for at in range(count))
    found = [
        message for batch in messages_of(make_spec(), records) for message in batch.to_pylist()
    ]
    assert found == [f"line {at}" for at in range(count)]
    assert list(messages_of(make_spec(), [])) == []
