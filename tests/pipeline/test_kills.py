"""The short form of the soak `pipeline_kills`: a node and a driver that die under way."""

from pathlib import Path

import pytest

from tests.pipeline.kills import FAULTS, pipeline_kill_rounds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_pipeline_agrees_with_a_plain_reading_after_kills_of_node_and_driver(
    tmp_path: Path,
) -> None:
    seeds = [FAULTS.index("node"), FAULTS.index("driver")]
    for outcome in pipeline_kill_rounds(tmp_path, seeds):
        assert outcome.problems == [], outcome
        assert outcome.acknowledged >= 2000
