"""The short form of the long runs; `make soak NAME=...` runs them in full."""

from pathlib import Path

import pytest

from tests.faults import load
from tests.faults.compaction_cuts import compaction_cut_rounds
from tests.faults.disk import CuttableDisk
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round, kill_rounds
from tests.faults.ledger import Ledger
from tests.faults.power_cuts import power_cut_rounds
from tests.faults.test_disk_failures import send
from tests.support.node import MillstreamNode

pytestmark = pytest.mark.slow

KILLS = 10
POWER_CUTS = 10
COMPACTION_CUTS = 10


def check(rounds: list[Round], count: int) -> None:
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == count
    assert all(outcome.acknowledged >= ACKNOWLEDGED_PER_ROUND_MIN for outcome in rounds)


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    check(list(kill_rounds(tmp_path / "data", list(range(KILLS)))), KILLS)


@pytest.mark.timeout(400)
@pytest.mark.root
def test_nothing_acknowledged_by_acks_all_is_lost_by_a_power_cut(tmp_path: Path) -> None:
    check(list(power_cut_rounds(tmp_path, list(range(POWER_CUTS)))), POWER_CUTS)


@pytest.mark.timeout(400)
@pytest.mark.root
def test_compaction_loses_nothing_by_a_power_cut(tmp_path: Path) -> None:
    check(list(compaction_cut_rounds(tmp_path, list(range(COMPACTION_CUTS)))), COMPACTION_CUTS)


@pytest.mark.timeout(120)
@pytest.mark.root
def test_the_check_of_a_cut_sees_records_below_the_old_end_of_the_log(tmp_path: Path) -> None:
    """Nothing was synced when the power went, so the log became shorter, and what is
    acknowledged then has offsets below the end that was seen before the cut."""
    with CuttableDisk(tmp_path) as disk:
        node = MillstreamNode(tmp_path / "mnt" / "data")
        node.keep_log_in(tmp_path)
        node.start()
        try:
            load.create_topic(node.bootstrap)
            send(node.bootstrap, 3, 10, acks=1)
            start = load.end_offsets(node.bootstrap)
            node.freeze()
            disk.cut_power()
            node.kill()
            disk.unmount()
            disk.mount()
            node.start()
            assert load.end_offsets(node.bootstrap)[0] < start[0]
            ledger = Ledger()
            for number, offset in enumerate(send(node.bootstrap, 2, 10)):
                assert isinstance(offset, int)
                ledger.acknowledge(f"all:{number}", 0, offset)
            found, _ = load.read_all(node.bootstrap, ledger.first_offsets(start))
            assert set(ledger.acknowledged.values()) <= set(found)
        finally:
            node.kill()
