import os
import socket
import sys
from pathlib import Path

import pytest

from millstream.cli.port_holder import listening_sockets, port_holders

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7001 1 0
   1: 0100007F:2384 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 7002 1 0
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 7003 1 0
"""


def test_only_listening_sockets_of_the_port_count() -> None:
    assert listening_sockets(TABLE, 9092) == {"7001"}
    assert listening_sockets(TABLE, 22) == {"7003"}
    assert listening_sockets(TABLE, 80) == set()
    assert listening_sockets("", 80) == set()


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_this_process_is_named_as_the_holder_of_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        [holder] = port_holders(server.getsockname()[1])
    assert holder.startswith(f"{os.getpid()} ")
    assert Path(sys.executable).name in holder
