"""One broker of a `ProcessCluster`, as a process: `python -m millstream.testing.node_process`.

Reads JSON lines: first the options of the broker, then which nodes it does not reach. Answers the
first with its port, and each of the others with an empty object. Stops cleanly when the input ends.
"""

import asyncio
import json
import sys
from typing import Any

from millstream.broker.broker import Broker
from millstream.config import load_config
from millstream.testing.network import CutNetwork


async def serve(read_line: Any, write: Any) -> None:
    """`read_line` gives the next line, and an empty one at the end of the input."""
    options: dict[str, str] = json.loads(await read_line())
    network = CutNetwork()
    broker = Broker(load_config(flags=options), dev=True)
    node_id = int(options["node.id"])
    broker.pass_through(lambda dispatch: network.guarded(node_id, dispatch))
    await broker.start()
    write(json.dumps({"port": broker.port}))
    while line := await read_line():
        network.cut({node_id: set(json.loads(line))})
        network.break_off(node_id, broker.connections)
        write(json.dumps({}))
    await broker.stop()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await serve(reader.readline, lambda text: print(text, flush=True))


if __name__ == "__main__":
    asyncio.run(_main())
