"""A node as a member of a cluster: how it joins, and how it leaves.

The order is what makes it safe. The directory is claimed before anybody hears of the node;
whether data may be lost is known before the node says that it is there again; the
controller has taken it out of every in-sync set before its logs are opened; and only when
they are, and its port is open, is it registered.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from millstream.broker.membership.replicas import Replicas
from millstream.broker.upkeep.healing import Healing
from millstream.broker.upkeep.scrubbing import Scrubbing
from millstream.cluster.in_cluster import InCluster
from millstream.cluster.joining import Session
from millstream.cluster.leaders import Leaders
from millstream.cluster.membership import Membership
from millstream.cluster.state import BrokerState, Endpoint, LogEnd
from millstream.cluster.supervisor import policy_of
from millstream.replication.cluster_commit import ClusterCommit

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

OpenSession = Callable[[], Awaitable[Session]]

_TOKEN_BYTES: Final = 12
_HAND_OVER_SECONDS_MAX: Final = 30.0


class Clustering:
    """To be made when the data directory is claimed and its logs are not loaded yet."""

    def __init__(
        self,
        broker: "Broker",
        open_session: OpenSession,
        durability: ClusterCommit,
    ) -> None:
        self._broker = broker
        store = broker.store
        self.membership = Membership(
            open_session,
            broker_id=broker.node_id,
            clock=broker.clock,
            new_token=lambda: os.urandom(_TOKEN_BYTES).hex(),
            new_cluster_id=lambda: store.cluster_id,
            policy=policy_of(lambda: broker.controller.effective_config),
            cluster_id=None if store.is_nobodys else store.cluster_id,
        )
        self._leaving: asyncio.Task[None] | None = None
        self.publisher = InCluster(self.membership)
        self.leaders = Leaders(self.membership)
        self.replicas = Replicas(broker, self.membership, durability)
        self._healing = Healing(broker, self.replicas, self.leaders)
        self._scrubbing = Scrubbing(broker, self._healing.heal)
        self.replicas.on_doubt = self._scrubbing.doubt
        self._healing_offline: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """An image, a broker epoch, and no place in any in-sync set. Raises StartError."""
        store = self._broker.store
        await self.membership.join(is_suspect=store.last_run.may_have_lost_data())
        store.keep_meta(self.membership.image.cluster_id)
        # The controller has taken this node out of every in-sync set.
        store.last_run.forget_failed_disk()

    async def register(self) -> None:
        """The logs are open and the port is: from now on others may count on this node."""
        self.replicas.start()
        self.membership.subscribe(self.replicas)
        await self.membership.register(self._describe)
        self._broker.producer_ids.keep_spare()
        self._scrubbing.start()
        heal = self._healing.heal_offline()
        self._healing_offline = asyncio.get_running_loop().create_task(heal)

    def _describe(self) -> BrokerState:
        broker = self._broker
        endpoints = tuple(
            Endpoint(name, *broker.advertised(name), protocol)
            for name, protocol in broker.listener_protocols.items()
        )
        log_ends = []
        for where, leader_epoch in self.membership.lost_partitions():
            found = broker.store.logs.get(where)
            if found is not None:
                end = LogEnd(where, leader_epoch, found.epochs.latest, found.next_offset)
                log_ends.append(end)
        return BrokerState(
            broker.node_id,
            endpoints,
            broker.config.optional_string("broker.rack"),
            log_ends=tuple(log_ends),
        )

    def disk_failed(self) -> None:
        """Others lead from now on, and the next start says that data may be lost."""
        self._broker.store.last_run.note_failed_disk()
        self.replicas.fenced("the disk failed")
        self._leaving = asyncio.get_running_loop().create_task(self.membership.leave())

    async def hand_over(self) -> None:
        """Let others lead what this node leads, before it stops."""
        config = self._broker.config
        if config.boolean("controlled.shutdown.enable"):
            await self.membership.hand_over(seconds_max=_HAND_OVER_SECONDS_MAX)

    async def stop(self) -> None:
        await self._scrubbing.stop()
        if self._healing_offline is not None:
            # It was registered: the rest of `register` has begun, too.
            await self._broker.producer_ids.stop()
            self._healing_offline.cancel()
            await asyncio.gather(self._healing_offline, return_exceptions=True)
        await self.replicas.stop()

    async def leave(self) -> None:
        """Last of all: for the others this node is gone."""
        if self._leaving is not None:
            await asyncio.gather(self._leaving, return_exceptions=True)
        else:
            await self.membership.leave()
