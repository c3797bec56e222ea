"""A start is mostly imports: what a node may do without until it is asked, it does not import.

Covers broker, cli/broker.py.
"""

import subprocess
import sys

_START = """
import asyncio, sys
from millstream.broker.broker import Broker
from millstream.config import load_config

async def main():
    flags = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = Broker(load_config(flags=flags), dev=True)
    await node.start()
    print(*(name for name in sys.modules if name.startswith("millstream.coordinators")))
    assert not node.coordination.has_groups and not node.coordination.has_transactions
    if sys.argv[2] == "asks":
        await node.coordination.groups.ensure_topic()
        await node.coordination.transactions.ensure_topic()
    await node.stop()

    again = Broker(load_config(flags=flags), dev=True)
    await again.start()
    print(again.coordination.has_groups, again.coordination.has_transactions)
    await again.stop()

asyncio.run(main())
"""


def _start_twice(directory: object, asks: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _START, str(directory), asks],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_node_without_groups_starts_without_what_they_need(tmp_path: object) -> None:
    assert _start_twice(tmp_path, "nothing") == ["", "False False"]


def test_a_node_that_had_groups_and_transactions_has_them_after_a_restart(
    tmp_path: object,
) -> None:
    assert _start_twice(tmp_path, "asks") == ["", "True True"]


_FIRST_REQUESTS = """
import sys
from importlib import import_module
from millstream.broker.broker import Broker
for name in ("api_versions", "metadata", "create_topics", "produce", "fetch", "list_offsets"):
    import_module(f"millstream.broker.handlers.{name}")
print(*(name for name in sys.modules if name.startswith("millstream.coordinators")))
"""


def test_the_first_produce_and_fetch_do_not_import_what_groups_and_transactions_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_REQUESTS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


_FIRST_INIT_PRODUCER_ID = """
import asyncio, struct, sys, threading
from millstream.broker.broker import Broker
from millstream.config import load_config

class Watch:
    on_loop = []
    in_thread = []

    def find_spec(self, name, path=None, target=None):
        if name.startswith("millstream.coordinators"):
            is_loop = threading.current_thread() is threading.main_thread()
            (self.on_loop if is_loop else self.in_thread).append(name)

async def main():
    flags = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = Broker(load_config(flags=flags), dev=True)
    await node.start()
    sys.meta_path.insert(0, Watch())
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    for correlation_id in (7, 8):
        body = struct.pack(">hhihhi", 22, 0, correlation_id, -1, -1, 60_000)
        writer.write(struct.pack(">i", len(body)) + body)
    for correlation_id in (7, 8):
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = struct.unpack(">iihqh", await reader.readexactly(size))
        assert (answer[0], answer[2]) == (correlation_id, 0), answer
    print(len(Watch.in_thread) > 0, Watch.on_loop)
    writer.close()
    await node.stop()

asyncio.run(main())
"""


def test_what_the_first_request_of_an_api_needs_is_imported_while_others_are_served(
    tmp_path: object,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_INIT_PRODUCER_ID, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "[]"]


_MANY_FIRST_REQUESTS = """
import asyncio, struct, sys, threading
from millstream.broker.broker import Broker
from millstream.broker.requests import dispatch
from millstream.config import load_config

imports = []
may_import = threading.Event()
import_handler = dispatch.import_handler

def import_when_told(one):
    if one.key == 22:
        imports.append(one.name)
        may_import.wait()
    import_handler(one)

dispatch.import_handler = import_when_told
API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)
INIT_PRODUCER_ID = struct.pack(">hhihhi", 22, 0, 2, -1, -1, 60_000)

async def ask(connection, body):
    reader, writer = connection
    writer.write(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)

async def main():
    flags = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = Broker(load_config(flags=flags), dev=True)
    await node.start()
    clients = [await asyncio.open_connection("127.0.0.1", node.port) for _ in range(20)]
    for client in clients:
        await ask(client, API_VERSIONS)
    *many, last, gone = clients
    asked = [asyncio.create_task(ask(client, INIT_PRODUCER_ID)) for client in [gone, *many]]
    # The first one's client does not wait for its answer.
    await ask(last, API_VERSIONS)
    gone[1].close()
    await ask(last, API_VERSIONS)
    may_import.set()
    answers = await asyncio.gather(*asked[1:])
    codes = {struct.unpack(">iihqh", answer)[2] for answer in answers}
    asked[0].cancel()
    print(imports, codes)
    for _, writer in clients:
        writer.close()
    await node.stop()

asyncio.run(main())
"""


def test_the_first_requests_of_many_clients_wait_for_one_import(tmp_path: object) -> None:
    """Else they would wait in line, each for a turn of the thread, while logs are replayed."""
    done = subprocess.run(
        [sys.executable, "-c", _MANY_FIRST_REQUESTS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['init_producer_id'] {0}"
