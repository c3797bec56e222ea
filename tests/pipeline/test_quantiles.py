"""Percentiles from parts, however the values are divided."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.quantiles import LEVEL_VALUES, Quantiles

SHARES = (0.5, 0.95, 0.99)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def exact(values: list[float]) -> list[float]:
    return [sorted(values)[math.ceil(share * len(values)) - 1] for share in SHARES]


@given(st.lists(st.lists(NUMBERS, min_size=1), min_size=1))
def test_few_values_are_exact(parts: list[list[float]]) -> None:
    found = Quantiles()
    for part in parts:
        found.add(np.array(part))
    values = [value for part in parts for value in part]
    assert found.at(SHARES) == exact(values)
    assert len(found) == len(values)


@pytest.mark.parametrize("part_size", [777, 50_000, 2 * LEVEL_VALUES])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_many_values_are_off_by_no_more_than_a_thousandth_of_the_rank(
    part_size: int, order: str
) -> None:
    count = 700_000
    values = np.arange(count, dtype=np.float64)
    if order == "descending":
        values = values[::-1]
    elif order == "mixed":
        values = np.random.default_rng(7).permutation(values)
    # As tasks bring them: each its own part, with its own levels.
    found = Quantiles()
    for first in range(0, count, part_size):
        part = Quantiles()
        part.add(values[first : first + part_size])
        for level, of_level in enumerate(part.levels()):
            found.add(of_level, level)
    assert len(found) == count
    for share, value in zip(SHARES, found.at(SHARES), strict=True):
        assert abs((value + 1) / count - share) <= 0.001
    assert sum(map(len, found.levels())) < 8 * LEVEL_VALUES
