"""Memory that a large request has taken is given back to the system."""

import subprocess
import sys

import pytest

# After the first large block that is freed, glibc takes such blocks from its heap, where one that
# lives on holds all that is below it. Those that live on are too large for a gap left by the start.
CHURN = """
import sys
if "keep_little" in sys.argv:
    from millstream.broker.upkeep.allocator import keep_little_memory
    keep_little_memory()
first = b"x" * 20_000_000
del first
large, kept = [], []
for _ in range(5):
    large.append(b"x" * 10_000_000)
    kept.append(b"x" * 1_000_000)
large.clear()
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmRSS")))
"""


def resident_mb(*arguments: str) -> int:
    command = [sys.executable, "-c", CHURN, *arguments]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(found) // 1024


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and glibc")
def test_large_blocks_return_to_the_system() -> None:
    assert resident_mb("keep_little") < resident_mb() - 30
