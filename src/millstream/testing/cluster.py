"""Several brokers in one thread of the test's process: replication, elections, failover.

Each is the broker that users run, with its own port and its own data. Only the coordination store
is another one: it is in memory, where a cluster has ZooKeeper.
"""

import time
from collections.abc import Collection, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from millstream.broker.broker import Broker as Node
from millstream.broker.membership.member import Member
from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Dispatch
from millstream.cluster.membership import Membership
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.cluster.stores.store import CoordinationFailed
from millstream.config import load_config
from millstream.testing.brokers import Brokers, Replicas
from millstream.testing.client_config import Access
from millstream.testing.clock import MovableClock
from millstream.testing.credentials import Credentials, secured_settings
from millstream.testing.faults import Faults
from millstream.testing.loop_thread import LoopThread
from millstream.testing.network import CutNetwork, largest, sides_of, unreached
from millstream.testing.older_kafka import older_kafka
from millstream.testing.traffic import ConnectedClient, SeenRequest, Traffic, connected_clients

_START_SECONDS_MAX: Final = 60.0


class Cluster(Brokers):
    """`with Cluster(brokers=3) as cluster:` runs nodes 1, 2 and 3 until the block ends."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        replication: int | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        storage: str = "memory",
        security: str | None = None,
    ) -> None:
        """`topics` are names with partition counts, `settings` broker options by Kafka's names.
        `replication` is the number of replicas of topics that do not choose: three, or one for
        each broker if there are fewer. `security` is `ssl`, `sasl_ssl` or `sasl_plaintext`, for
        clients; the brokers talk to each other on a second listener. A `data_dir` that is given is
        kept afterwards, with a directory for each broker; without one the data is temporary."""
        super().__init__(
            brokers=brokers,
            replication=replication,
            topics=topics,
            settings=settings,
            storage=storage,
        )
        self._data_dir = data_dir
        self._security = security
        self._credentials: Credentials | None = None
        self.clock = MovableClock()
        self._tree = MemoryTree()
        # Those that run; the others were killed.
        self._nodes: dict[int, Node] = {}
        self._sessions: dict[int, MemoryStore] = {}
        self._network = CutNetwork()
        # Nodes that do not reach the coordination store.
        self._isolated: set[int] = set()
        # Of clients, with all brokers.
        self._traffic = Traffic(time.monotonic)
        self._traffic.name_of = self._name_of
        self._thread: LoopThread | None = None
        self._folder: Path

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Run all brokers; they form a cluster when this returns."""
        assert self._thread is None, "the cluster runs already"
        self._folder = self._data_dir or self._temporary_folder(self._storage)
        if self._security is not None:
            self._credentials = Credentials.make(self._security, self._folder)
        self._thread = LoopThread("millstream-cluster", self.clock)
        try:
            self._start_all()
        except BaseException:
            # A block that was not entered is never left.
            self.close()
            raise

    def close(self) -> None:
        """Stop all brokers and remove their data."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            while self._nodes:
                _, node = self._nodes.popitem()
                thread.run(node.abandon(), seconds_max=_START_SECONDS_MAX)
        finally:
            thread.stop()
            self._remove_temporary()

    def kill(self, node_id: int) -> None:
        """As `kill -9` does: no farewell. Other brokers take over what it leads."""
        node = self._nodes.pop(self._check_running(node_id))
        self._run(node.abandon())

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly: it hands its leaderships over first."""
        node = self._nodes.pop(self._check_running(node_id))
        self._run(node.stop())

    def repair(self) -> None:
        self.faults.clear()
        super().repair()

    def _start_one(self, node_id: int) -> None:
        self._run(self._start(node_id))

    # -- the network ------------------------------------------------------------------

    def partition_network(self, *sides: Collection[int]) -> None:
        """Brokers of different sides do not reach each other any more. The coordination store is
        with the largest side, or the first of equal ones; the others lose their sessions. Clients
        reach everyone."""
        everyone = sides_of(sides, self.ids)
        self._isolated = set(self.ids) - largest(everyone)
        self._network.cut(unreached(everyone))
        self._run(self._break_off())

    def heal_network(self) -> None:
        """Everyone reaches everyone again."""
        self._network.cut({})
        self._isolated = set()

    async def _break_off(self) -> None:
        for node_id, node in self._nodes.items():
            self._network.break_off(node_id, node.connections)
        for node_id in self._isolated & self._nodes.keys():
            self._sessions[node_id].expire()

    def _watched(self, node_id: int, dispatch: Dispatch) -> Dispatch:
        """Requests of clients are noted and may get a fault; those of nodes need the network."""
        of_clients = self._traffic.through(dispatch)
        of_nodes = self._network.guarded(node_id, dispatch)

        def watched(connection: Connection, frame: memoryview) -> Pieces | Pending:
            answer = of_clients if connection.proved_node_id < 0 else of_nodes
            return answer(connection, frame)

        return watched

    # -- looking ----------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        return self._traffic.faults

    def limit_versions(self, release: str) -> None:
        """Every broker offers clients what an older Kafka did, such as `3.9`, from now on."""
        self._traffic.older = older_kafka(release)

    def requests(self, api: str | None = None, client_id: str | None = None) -> list[SeenRequest]:
        """The last ten thousand requests of clients to any broker, in order."""
        return self._traffic.requests(api, client_id)

    def clients(self) -> list[ConnectedClient]:
        """Who is connected now, to any broker."""
        assert self._thread is not None, "the cluster does not run"
        work = connected_clients(list(self._nodes.values()))
        return self._thread.run(work, seconds_max=_START_SECONDS_MAX)

    def _access(self) -> Access:
        if self._credentials is None:
            return super()._access()
        return self._credentials.access(self.bootstrap)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = self._image(self._one_reaching()).topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def running(self) -> list[int]:
        return sorted(self._nodes)

    @property
    def controller(self) -> int:
        return self._image(self._one_reaching()).controller_id

    def _reaching(self) -> list[int]:
        return [one for one in self.running if not self._membership(one).is_fenced]

    def _replicas_known_to(self, node_id: int) -> dict[tuple[str, int], Replicas]:
        return {
            (topic.name, number): Replicas(one.leader, frozenset(one.replicas), one.isr)
            for topic in list(self._image(node_id).topics.values())
            for number, one in enumerate(topic.partitions)
        }

    def _alive(self) -> Collection[int]:
        images = [node.node.image for node in self._nodes.values()]
        return set[int](self.ids).intersection(*(image.brokers for image in images))

    def _image(self, node_id: int) -> ClusterImage:
        return self._membership(node_id).image

    def _membership(self, node_id: int) -> Membership:
        member = self._nodes[node_id].node.cluster
        assert isinstance(member, Member), "open_session makes it one"
        return member.membership

    # -- in the thread of the brokers -------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._thread is not None, "the cluster does not run"
        self._thread.run(work, seconds_max=_START_SECONDS_MAX)

    async def _start(self, node_id: int) -> None:
        protocol = "PLAINTEXT" if self._security is None else self._security.upper()
        settings = {**self._settings, **secured_settings(self._credentials)}
        config = load_config(
            sets=[f"{name}={value}" for name, value in settings.items()],
            flags={
                "node.id": str(node_id),
                "log.dirs": str(self._folder / f"node-{node_id}"),
                "listeners": f"CLIENTS://127.0.0.1:{self._ports[node_id]},NODES://127.0.0.1:0",
                "listener.security.protocol.map": f"CLIENTS:{protocol},NODES:PLAINTEXT",
                "inter.broker.listener.name": "NODES",
            },
        )
        opener = partial(self._open_session, node_id)
        node = Node(config, dev=True, clock=self.clock, open_session=opener)
        node.pass_through(partial(self._watched, node_id))
        await node.start()
        self._ports[node_id] = node.port
        self._nodes[node_id] = node

    async def _open_session(self, node_id: int) -> MemoryStore:
        if node_id in self._isolated:
            raise CoordinationFailed("the test has cut the network")
        self._sessions[node_id] = self._tree.open_session()
        return self._sessions[node_id]
