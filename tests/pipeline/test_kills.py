"""The short form of the soak `pipeline_kills`: a driver and a node that die under way.

Covers pipeline, spark.
"""

from pathlib import Path

import pytest

from tests.pipeline.kills import FAULTS, pipeline_kill_rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]


def test_a_pipeline_agrees_with_a_plain_reading_after_kills_of_driver_and_node(
    tmp_path: Path,
) -> None:
    # The driver first: it needs to have begun its first batch only.
    seeds = [FAULTS.index("driver"), FAULTS.index("node")]
    for outcome in pipeline_kill_rounds(tmp_path, seeds):
        assert outcome.problems == [], outcome
        assert outcome.acknowledged >= 2000
