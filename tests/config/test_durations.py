import pytest

from millstream.config.durations import iso_duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt30m", 1_800_000),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert iso_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1Y", "PT1", "PT-1H"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        iso_duration_ms(text)
