import re
from itertools import pairwise

import pytest

from millstream.pipeline.reporting.charts import column_chart


def labels_in(chart: str) -> list[float]:
    """Where each label stands."""
    return [float(x) for x in re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle"', chart)]


@pytest.mark.parametrize("count", [1, 24, 400, 2_000, 10_000])
def test_labels_do_not_overlap_however_many_columns_there_are(count: int) -> None:
    names = [f"{number:05}" for number in range(count)]
    chart = column_chart(names, [1.0] * count, names, largest="1")
    assert chart.count("<rect") == count
    places = labels_in(chart)
    assert places
    # A character takes about seven units.
    assert all(later - earlier >= 35 for earlier, later in pairwise(places))
