"""Durations as people write them."""

import click
import pytest

from millstream.cli.durations import DURATION


def test_durations_have_units() -> None:
    texts = ("500ms", "90s", "1.5h", "7d", "2w")
    found = [DURATION.convert(text, None, None) for text in texts]
    assert found == [0.5, 90, 5_400, 604_800, 1_209_600]


@pytest.mark.parametrize("text", ["", "5", "soon", "-1s", "1y", "1 s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration"):
        DURATION.convert(text, None, None)
