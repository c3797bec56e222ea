"""Templates: what they are, that they are counted, and that the compiled loop finds the same.

Covers lines/_drain_pure.py, lines/templates.py.
"""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.lines._drain_pure import tokens_of
from millstream.lines.templates import (
    COMPILED,
    Implementation,
    Templates,
    most_frequent,
    pure,
)

IMPLEMENTATIONS = [pure(), *([COMPILED] if COMPILED else [])]
both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=lambda each: each.NAME)


def strings(*messages: str | None) -> pa.StringArray:
    return pa.array(messages, pa.string())


def mined(*messages: str, implementation: Implementation) -> list[str]:
    templates = Templates(implementation=implementation)
    templates.add(strings(*messages))
    return [template.text for template in templates.found()]


@pytest.mark.parametrize(
    ("token", "masked"),
    [
        ("42", "<*>"),
        ("-4.5,", "<*>,"),
        ("/10.251.1.9:50010", "/<*>"),
        ("blk_-1608999687919862906", "blk_<*>"),
        ("0x1F", "<*>"),
        ("id=38101a0b-2096-447d-96ea-a692162415ae", "id=<*>"),
        ("deadbeef", "deadbeef"),
        ("deadbee5", "<*>"),
        ("a-5", "a-<*>"),
        ("5+7", "<*>+<*>"),
        ("v2", "v2"),
        ("node-7-up", "node-<*>-up"),
        ("é5", "é5"),
        ("13:59:58.123", "<*>"),
        ("[7]", "[<*>]"),
    ],
)
def test_numbers_addresses_and_identifiers_are_replaced(token: str, masked: str) -> None:
    assert tokens_of(token.encode()) == [masked.encode()]
    for implementation in IMPLEMENTATIONS:
        assert mined(token, implementation=implementation) == [masked]


@both
def test_words_that_differ_become_anything(implementation: Implementation) -> None:
    found = mined(
        "user alice logged in from 10.0.0.1",
        "disk full",
        "user alice logged out from 10.0.0.2",
        "  user\tbob logged in from 10.0.0.3\n",
        implementation=implementation,
    )
    assert found == ["user alice logged <*> from <*>", "disk full", "user bob logged in from <*>"]


@both
def test_counts_samples_and_what_is_new_or_gone(implementation: Implementation) -> None:
    templates = Templates(implementation=implementation)
    assert templates.add(strings("took 5 ms", None, "gone soon", "took 6 ms")).tolist() == [
        *(0, -1, 1, 0)
    ]
    assert templates.messages == 3
    templates.begin_period()
    templates.add(strings("took 7 ms", "all new here", "all new here"))
    took, gone, new = templates.found()
    assert (took.text, took.counts, took.sample) == ("took <*> ms", (2, 1), "took 5 ms")
    assert (took.is_new, took.has_vanished) == (False, False)
    assert (gone.is_new, gone.has_vanished, gone.counts) == (False, True, (1, 0))
    assert (new.is_new, new.has_vanished, new.counts) == (True, False, (0, 2))
    assert most_frequent(templates.found(), 5) == [new, took]
    assert most_frequent(templates.found(), 1) == [new]


@both
def test_memory_is_bounded(implementation: Implementation) -> None:
    templates = Templates(templates_max=3, implementation=implementation)
    found = templates.add(strings("a b", "c d", "e f", "g h", "a b"))
    assert found.tolist() == [0, 1, 2, -2, 0]
    assert (len(templates.found()), templates.others, templates.messages) == (3, 1, 5)


@both
def test_messages_that_begin_with_many_words_share_a_template(
    implementation: Implementation,
) -> None:
    names = [chr(97 + at // 26) + chr(97 + at % 26) for at in range(200)]
    found = mined(
        *(f"{name} has just joined the room now" for name in names), implementation=implementation
    )
    assert len(found) == 101
    assert found[-1] == "<*> has just joined the room now"


@both
def test_slices_and_long_and_empty_messages(implementation: Implementation) -> None:
    templates = Templates(implementation=implementation)
    column = strings("x", "", " ", None, "w " * 500, "w " * 600)
    assert templates.add(column.slice(1)).tolist() == [0, 0, -1, 1, 1]
    assert templates.add(column.slice(0, 0)).tolist() == []
    assert len(templates.found()[1].text.split()) == 128


words = st.sampled_from(
    ["a", "b", "user", "é", "5", "-7", "1.2.3.4:80", "0xff", "<*>", "x=1", "abcdef12-", "+", "-"]
)
pieces = st.text(st.sampled_from("0a9f-+.:xX<*>é _=/G\t"), max_size=14)


@pytest.mark.skipif(COMPILED is None, reason="needs the compiled millstream.lines._drain")
@given(st.lists(st.none() | st.lists(words | pieces, max_size=6).map(" ".join), max_size=40))
def test_any_messages_have_the_same_templates_in_both(messages: list[str | None]) -> None:
    assert COMPILED is not None
    column = strings(*messages)
    plain = Templates(templates_max=8, implementation=pure())
    compiled = Templates(templates_max=8, implementation=COMPILED)
    assert compiled.add(column).tolist() == plain.add(column).tolist()
    assert compiled.found() == plain.found()
    hashes = COMPILED.skeleton_hashes(column).tolist()
    assert hashes == pure().skeleton_hashes(column).tolist()
    assert COMPILED.skeleton_hashes(column.slice(1)).tolist() == hashes[1:]
    for mine, plains in zip(
        COMPILED.group_hashes(np.array(hashes, np.uint64)),
        pure().group_hashes(np.array(hashes, np.uint64)),
        strict=True,
    ):
        assert mine.tolist() == plains.tolist()
    # The same number for the same tokens, and for no others.
    skeletons = [None if each is None else tuple(tokens_of(each.encode())) for each in messages]
    assert len(set(zip(skeletons, hashes, strict=True))) == len(set(skeletons)) == len(set(hashes))


@pytest.mark.skipif(COMPILED is None, reason="needs the compiled millstream.lines._drain")
def test_batches_of_any_size_give_the_same_templates() -> None:
    draw = random.Random(7)
    names = ["get", "put", "scan", "drop"]
    messages = [
        f"{draw.choice(names)} of table {draw.choice('abc')} took {draw.random()} ms"
        for _ in range(2000)
    ]
    whole = Templates()
    numbers = whole.add(strings(*messages)).tolist()
    parts = Templates()
    found: list[int] = []
    while len(found) < len(messages):
        part = messages[len(found) : len(found) + draw.randrange(1, 99)]
        found += parts.add(strings(*part)).tolist()
    assert found == numbers
    assert parts.found() == whole.found()
