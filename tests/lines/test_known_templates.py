"""Templates found from skeletons, kept, read back and forgotten."""

from copy import deepcopy

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.lines.known_templates import KnownTemplates, skeleton_of
from millstream.lines.templates import pure

WORDS = st.sampled_from(["a", "b", "c", "user", "5", "x=1", "is", "gone"])
MESSAGES = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), max_size=40)


def texts(known: KnownTemplates) -> dict[int, str]:
    return {number: template.text for number, template in known.templates.items()}


def read_back(known: KnownTemplates) -> KnownTemplates:
    found = KnownTemplates(8)
    found.restore(deepcopy(list(known.templates.values())), known.next_number)
    return found


def test_numbers_are_replaced_and_long_messages_are_cut() -> None:
    assert skeleton_of(" took 5 ms\n") == "took <*> ms"
    assert skeleton_of("") == ""
    assert skeleton_of("word " * 500) == ("word " * 80).strip()
    assert len(skeleton_of("w" * 5000)) == 400


@given(MESSAGES)
def test_the_rule_is_that_of_the_miner(messages: list[str]) -> None:
    known = KnownTemplates(1000)
    numbers = [known.find(skeleton_of(each)) for each in messages]
    miner = pure().Miner(1000)
    assert numbers == miner.add(pa.array(messages, pa.string())).tolist()
    assert list(texts(known).values()) == miner.texts()


@given(MESSAGES, MESSAGES, st.sets(st.integers(0, 7)))
def test_what_was_read_back_goes_on_as_before(
    before: list[str], after: list[str], forgotten: set[int]
) -> None:
    known = KnownTemplates(8)
    for each in before:
        known.find(skeleton_of(each))
    for number in forgotten & set(known.templates):
        known.forget(number)
    again = read_back(known)
    skeletons = [skeleton_of(each) for each in after]
    assert [again.find(each) for each in skeletons] == [known.find(each) for each in skeletons]
    assert texts(again) == texts(known)


def test_there_are_not_more_than_fit_until_one_is_forgotten() -> None:
    known = KnownTemplates(2)
    assert [known.find(each) for each in ("a b", "c d", "e f", "a b")] == [0, 1, None, 0]
    known.forget(0)
    assert (known.find("e f"), len(known)) == (2, 2)
    # A number is never used again.
    assert set(texts(known)) == {1, 2}
