"""Network namespaces on one bridge, and cuts between two addresses of it. Needs root.

Every node has a namespace of its own. ZooKeeper and the clients are outside, at two
addresses of the bridge. A cut drops packets silently in both directions: nothing is refused.
"""

import ipaddress
import socket
import subprocess
from types import TracebackType

_SUBNET = "10.213.{number}.{host}"


class Network:
    """`with Network(3) as network:` has namespaces 1 to 3."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._claim, self._number = _claim_number()
        self._bridge = f"msb{self._number}"
        self.outside = self._address(254)
        self.zookeeper = self._address(253)
        self._cuts: list[tuple[int, str]] = []

    def _address(self, host: int) -> str:
        return _SUBNET.format(number=self._number, host=host)

    def address(self, node: int) -> str:
        return self._address(node)

    def _namespace(self, node: int) -> str:
        return f"msn{self._number}-{node}"

    def _outer(self, node: int) -> str:
        return f"msv{self._number}-{node}"

    def inside(self, node: int) -> list[str]:
        """What to put before a command that is to run there."""
        return ["ip", "netns", "exec", self._namespace(node)]

    def __enter__(self) -> "Network":
        self._remove()
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        for address in (self.outside, self.zookeeper):
            _run("ip", "addr", "add", f"{address}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for node in range(1, self._count + 1):
            name, outer = self._namespace(node), self._outer(node)
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", outer, "master", self._bridge, "up")
            _run(*self.inside(node), "ip", "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            _run(*self.inside(node), "ip", "link", "set", "eth0", "up")
            _run(*self.inside(node), "ip", "link", "set", "lo", "up")
            for command in ([*self.inside(node), "tc"], ["tc"]):
                device = "eth0" if len(command) > 1 else outer
                _run(*command, "qdisc", "add", "dev", device, "clsact")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()
        self._claim.close()

    def _remove(self) -> None:
        for node in range(1, self._count + 1):
            _try("ip", "netns", "del", self._namespace(node))
            # A namespace lives on while a process of an aborted run is in it.
            _try("ip", "link", "del", self._outer(node))
        _try("ip", "link", "del", self._bridge)

    def cut(self, node: int, address: str) -> None:
        """From now on nothing passes between the node and the address."""
        outgoing = _drop(address, offset=30)
        incoming = _drop(address, offset=26)
        for place, code in (("egress", outgoing), ("ingress", incoming)):
            _run(
                *self.inside(node),
                *("tc", "filter", "add", "dev", "eth0", place, "bpf", "da", "bytecode", code),
            )

    def heal(self, node: int) -> None:
        for place in ("egress", "ingress"):
            _run(*self.inside(node), "tc", "filter", "del", "dev", "eth0", place)


def _claim_number() -> tuple[socket.socket, int]:
    """A number that no other network of this machine has, as long as the socket is open."""
    for number in range(250):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0millstream-network-{number}")
        except OSError:
            claim.close()
            continue
        return claim, number
    raise AssertionError("there are 250 networks of tests already")


def _drop(address: str, *, offset: int) -> str:
    """A program of the classic packet filter: IPv4 with this address at `offset` is dropped."""
    number = int(ipaddress.IPv4Address(address))
    steps = [
        "40 0 0 12",
        "21 0 3 2048",
        f"32 0 0 {offset}",
        f"21 0 1 {number}",
        "6 0 0 2",
        "6 0 0 0",
    ]
    return f"{len(steps)},{','.join(steps)},"


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
