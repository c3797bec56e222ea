"""What every room of the broker may read about its node."""

from collections.abc import Callable

from millstream.broker.node.cluster import Cluster
from millstream.broker.node.data_directory import DataDirectory
from millstream.clock import Clock
from millstream.cluster.metadata import ClusterMetadata
from millstream.cluster.state import ClusterImage
from millstream.config import BrokerConfig
from millstream.replication.table import PartitionTable
from millstream.storage.producer_budget import NODE_BUDGET


class NodeState:
    """Holds the parts and decides nothing."""

    __slots__ = (
        "clock",
        "cluster",
        "config",
        "disk",
        "fetch_bytes_max",
        "metadata",
        "node_id",
        "on_config_changed",
        "partitions",
    )

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        metadata: ClusterMetadata,
        disk: DataDirectory,
        partitions: PartitionTable,
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.metadata = metadata
        self.disk = disk
        self.partitions = partitions
        # Set right after construction, because it reads this state.
        self.cluster: Cluster
        # The options in force. A new object after every change at run time.
        self.config: BrokerConfig
        # From `config`; read by every fetch.
        self.fetch_bytes_max: int
        self._read_config()
        # Called when options were changed at run time.
        self.on_config_changed: Callable[[], None] = lambda: None

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def reload_config(self) -> None:
        """Apply options that were set at run time."""
        self._read_config()
        self.partitions.generation.bump()
        self.on_config_changed()

    def _read_config(self) -> None:
        self.config = self.metadata.effective_config
        self.fetch_bytes_max = self.config.int("fetch.max.bytes")
        NODE_BUDGET.set_max(self.config.int("millstream.producers.max"))

    def now_ms(self) -> int:
        """Milliseconds of the monotonic clock, the clock of all deadlines."""
        return int(self.clock.monotonic() * 1000)
