"""The long runs: `python -m tests.faults.soak NAME`, resumable, one line per round.

Every round appends one JSON line to `tests/faults/results/NAME.jsonl`: the code that ran (git's
name of the tree `src`), the seed, how many records (of `group_kills`: commits) were acknowledged,
the fault that hit, and what was wrong.
A round with fewer than 2,000 of them does not count. Run again, it goes on where it stopped.
At the end it prints how long partitions were without a leader, or what attacks cost a good client,
where that was measured.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults import hostile
from tests.faults.cluster_copies import cluster_copy_passes
from tests.faults.cluster_cuts import cluster_cut_rounds, zookeeper_outage_rounds
from tests.faults.cluster_faults import (
    cluster_kill_rounds,
    cluster_power_cut_rounds,
    rolling_restart_rounds,
    rolling_upgrade_rounds,
    secure_cluster_kill_rounds,
)
from tests.faults.compaction_cuts import compaction_cut_rounds
from tests.faults.copy_job import copy_passes, copy_passes_with_power_cuts
from tests.faults.gaps import summary
from tests.faults.group_kills import group_kill_rounds
from tests.faults.hostile import hostile_rounds
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round, kill_rounds
from tests.faults.power_cuts import power_cut_rounds
from tests.faults.share_kills import share_kill_rounds
from tests.pipeline.cluster import pipeline_cluster_rounds
from tests.pipeline.kills import pipeline_kill_rounds
from tests.simulation.blocks import FIRST_BLOCK, simulation_blocks
from tests.spark.kills import spark_kill_rounds, spark_zombie_rounds
from tests.spark.standalone import standalone_rounds

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Soak:
    rounds: int
    run: Callable[[Path, list[int]], Iterator[Round]]
    seed_base: int


SOAKS = {
    "kills": Soak(200, lambda folder, seeds: kill_rounds(folder / "data", seeds), 1_000),
    "group_kills": Soak(
        100, lambda folder, seeds: group_kill_rounds(folder / "data", seeds), 5_000
    ),
    "share_kills": Soak(
        100, lambda folder, seeds: share_kill_rounds(folder / "data", seeds), 18_000
    ),
    "hostile": Soak(60, hostile_rounds, 7_000),
    "power_cuts": Soak(50, power_cut_rounds, 2_000),
    "compaction_cuts": Soak(200, compaction_cut_rounds, 6_000),
    "cluster_copies": Soak(50, cluster_copy_passes, 14_000),
    "cluster_cuts": Soak(100, cluster_cut_rounds, 13_000),
    "cluster_kills": Soak(300, cluster_kill_rounds, 10_000),
    "cluster_power_cuts": Soak(200, cluster_power_cut_rounds, 11_000),
    "secure_cluster_kills": Soak(100, secure_cluster_kill_rounds, 17_000),
    "rolling_restarts": Soak(20, rolling_restart_rounds, 12_000),
    "rolling_upgrades": Soak(6, rolling_upgrade_rounds, 21_000),
    "zookeeper_outages": Soak(20, zookeeper_outage_rounds, 15_000),
    "pipeline_kills": Soak(32, pipeline_kill_rounds, 16_000),
    "pipeline_cluster": Soak(4, pipeline_cluster_rounds, 19_000),
    "spark_kills": Soak(30, spark_kill_rounds, 8_000),
    "spark_zombies": Soak(6, spark_zombie_rounds, 10_000),
    "spark_standalone": Soak(2, standalone_rounds, 9_000),
    # Each round is a hundred seeds.
    "simulation": Soak(200, simulation_blocks, FIRST_BLOCK),
    "transaction_copies": Soak(20, copy_passes, 3_000),
    "transaction_power_cuts": Soak(20, copy_passes_with_power_cuts, 4_000),
}


def main(name: str) -> int:
    soak = SOAKS.get(name)
    if soak is None:
        print(f"no soak named {name!r}; there are: {', '.join(SOAKS)}", file=sys.stderr)
        return 2
    path = RESULTS / f"{name}.jsonl"
    code = _run(name, soak, path)
    rows = _rows(path)
    for line in summary(rows) + hostile.summary(rows):
        print(line)
    if hostile.is_too_slow(rows):
        print(f"a good client waits more than {hostile.SLOWER_MAX} times as long", file=sys.stderr)
        return 1
    return code


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def code() -> str:
    """What `git rev-parse HEAD:src` says of the code that these rounds run."""
    root = Path(__file__).parents[2]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    changed = "+changes" if git("status", "--porcelain", "src") else ""
    return git("rev-parse", "--short=12", "HEAD:src") + changed


def _run(name: str, soak: Soak, path: Path) -> int:
    """The rounds that are missing."""
    done = _rows(path)
    good = [row for row in done if row["counts"]]
    next_seed = soak.seed_base + len(done)
    missing = soak.rounds - len(good)
    print(f"{name}: {len(good)} of {soak.rounds} rounds done, {missing} to go", file=sys.stderr)
    if missing <= 0:
        return 0
    with tempfile.TemporaryDirectory(prefix="millstream-soak-") as folder:
        # More seeds than needed: a round that does not count is made up for.
        seeds = list(range(next_seed, next_seed + 2 * missing))
        for outcome in soak.run(Path(folder), seeds):
            counts = outcome.acknowledged >= ACKNOWLEDGED_PER_ROUND_MIN
            row = {"at": int(time.time()), "code": code(), **asdict(outcome), "counts": counts}
            with open(path, "a") as results:
                results.write(json.dumps(row) + "\n")
            missing -= counts
            print(f"{name}: seed {outcome.seed}, {missing} to go", file=sys.stderr)
            if outcome.problems:
                print("\n".join(outcome.problems[:20]), file=sys.stderr)
                return 1
            if missing <= 0:
                return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
