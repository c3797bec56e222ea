"""How long commands take to answer, on a node that it starts: `python -m bench.commands`.

The best of several runs, so that other work on the machine disturbs little. Prints milliseconds.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.node import MillstreamNode

RUNS = 7
# Without a broker, then with the topic `orders` and the group `readers`. DIR is the data directory.
CALLS = [
    "--help", "topic list --help", "generate systemd", "profile list", "storage segments DIR",
    "storage explain DIR/orders-0 0", "wait", "topic list", "topic list --wide",
    "topic describe orders", "topic offsets orders", "topic alter orders -c retention.ms=100000 -y",
    "group list", "group describe readers", "group lag",
    "group reset readers --to end --dry-run", "topic trim orders --consumed-by readers --dry-run",
    "txn list", "cluster describe", "cluster health", "cluster elect -y", "node config --all",
    "user list", "quota list", "consume orders -n 1", "produce orders",
    "export orders --to out.jsonl", "import orders --from out.jsonl", "doctor",
]  # fmt: skip


def run(words: list[str], bootstrap: str, folder: str) -> None:
    # As installed: a tree whose modules are compiled again for each command is twice as slow.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"MILLSTREAM_BOOTSTRAP": bootstrap, "MILLSTREAM_CONFIG": os.devnull}
    subprocess.run(
        [sys.executable, "-m", "millstream", *words],
        cwd=folder,
        env=environment,
        input=b"line\n",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )


def best_ms(words: list[str], bootstrap: str, folder: str) -> float:
    taken = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run(words, bootstrap, folder)
        taken.append(time.perf_counter() - began)
    return min(taken) * 1000


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        MillstreamNode(Path(folder) / "node", "--dev") as node,
    ):
        for line in ("topic create orders", "produce orders", "consume orders -e --group readers"):
            run(line.split(), node.bootstrap, folder)
        for call in CALLS:
            words = call.replace("DIR", f"{folder}/node").split()
            print(f"{best_ms(words, node.bootstrap, folder):6.0f}  millstream {call}", flush=True)


if __name__ == "__main__":
    main()
