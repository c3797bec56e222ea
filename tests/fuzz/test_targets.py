"""Every target with its seeds, what fuzzing has kept, and some chance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import kept
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_kept_from_fuzzing_surprises_its_reader(name: str) -> None:
    for data in [*TARGETS[name].seeds(), *kept(name)]:
        TARGETS[name].check(data)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_surprise_no_reader(name: str) -> None:
    seeds = list(TARGETS[name].seeds())

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(seeds), st.binary(max_size=40), st.floats(0, 1), st.integers(0, 20))
    def test(seed: bytes, inserted: bytes, place: float, removed: int) -> None:
        at = int(place * len(seed))
        TARGETS[name].check(seed[:at] + inserted + seed[at + removed :])

    test()
