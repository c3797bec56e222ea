"""How fast a node starts and how little it needs, beside Apache Kafka on this machine.

    python -m bench.startup [--quick]

The parts `footprint` and `partitions` of the benchmarks, for those who look only for these:
start to first answer, idle memory, memory per idle connection, many partitions.
"""

import sys

from bench.__main__ import run
from bench.rows import text_table

if __name__ == "__main__":
    print(text_table(run(["footprint", "partitions"], is_quick="--quick" in sys.argv)))
