"""How fast compaction is: the compiled record loops beside a plain copy, and the Python ones.

`python -m bench.compaction` shows CPU and memory as well.
"""

from bench.bench import Bench
from bench.compaction import in_process, write_log
from bench.rows import Row, at_least

PART = "compaction"


def run(bench: Bench) -> list[Row]:
    large, small = bench.path("compaction-large"), bench.path("compaction-small")
    bench.say("compaction: writing logs")
    # The Python loops get a tenth, and a tenth of the keys.
    write_log(large, size_bytes=600_000_000, keys=1_000_000)
    write_log(small, size_bytes=60_000_000, keys=100_000)
    rates: dict[str, list[float]] = {"copy": [], "compiled": [], "pure": []}
    for number in range(3):
        for what, found in rates.items():
            bench.say(f"compaction: {what}, round {number + 1} of 3")
            done = in_process(small if what == "pure" else large, what)
            found.append(done["megabytes"] / done["seconds"])
    compiled = rates["compiled"]
    return [
        Row(PART, "compaction", "MB/s", compiled, rates["copy"], at_least(0.3), "plain copy"),
        Row(PART, "compaction", "MB/s", compiled, rates["pure"], at_least(20), "Python loops"),
    ]
