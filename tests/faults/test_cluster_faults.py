"""The short form of the cluster's long runs; `make soak NAME=...` runs them in full."""

from pathlib import Path

import pytest

from tests.faults.cluster_copies import cluster_copy_passes
from tests.faults.cluster_cuts import cluster_cut_rounds, zookeeper_outage_rounds
from tests.faults.cluster_faults import (
    cluster_kill_rounds,
    cluster_power_cut_rounds,
    rolling_restart_rounds,
    secure_cluster_kill_rounds,
)
from tests.faults.kills import Round

pytestmark = [pytest.mark.slow, pytest.mark.java]

KILLS = 4
SECURE_KILLS = 3
POWER_CUTS = 2


def check(rounds: list[Round], count: int) -> None:
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == count


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_by_killing_nodes(tmp_path: Path) -> None:
    check(list(cluster_kill_rounds(tmp_path, list(range(KILLS)))), KILLS)


@pytest.mark.timeout(300)
def test_nor_with_tls_scram_and_sasl_while_certificates_rotate(tmp_path: Path) -> None:
    check(list(secure_cluster_kill_rounds(tmp_path, list(range(SECURE_KILLS)))), SECURE_KILLS)


@pytest.mark.timeout(300)
def test_a_rolling_restart_is_no_error_to_anybody(tmp_path: Path) -> None:
    check(list(rolling_restart_rounds(tmp_path, [0])), 1)


@pytest.mark.timeout(400)
@pytest.mark.root
def test_nothing_acknowledged_is_lost_by_a_power_cut_of_one_node(tmp_path: Path) -> None:
    check(list(cluster_power_cut_rounds(tmp_path, list(range(POWER_CUTS)))), POWER_CUTS)


@pytest.mark.timeout(300)
def test_a_copy_in_transactions_is_exactly_once_while_nodes_are_killed(tmp_path: Path) -> None:
    check(list(cluster_copy_passes(tmp_path, [0], records=20_000)), 1)


@pytest.mark.timeout(400)
@pytest.mark.root
def test_a_leader_cut_from_zookeeper_or_its_followers_loses_nothing(tmp_path: Path) -> None:
    check(list(cluster_cut_rounds(tmp_path, [0, 1])), 2)


@pytest.mark.timeout(300)
def test_without_zookeeper_acks_all_goes_on_and_nothing_is_lost(tmp_path: Path) -> None:
    check(list(zookeeper_outage_rounds(tmp_path, [0])), 1)
