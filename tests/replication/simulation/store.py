"""The coordination store in the simulation: one partition's state, and who is registered.

Its transactions have the checks of the real ones; who leads and who may is decided by the
real `cluster.election`.
"""

from dataclasses import replace

from millstream.cluster import election
from millstream.cluster.election import Nodes
from millstream.cluster.state import NO_LEADER, PartitionState

REPLICAS = (1, 2, 3)
NOBODY = NO_LEADER
State = PartitionState


class Outdated(Exception):
    """A check failed: nothing was written."""


class Store:
    def __init__(self, min_isr: int) -> None:
        self.state = State(NOBODY, 0, REPLICAS, REPLICAS, version=0, min_isr=min_isr)
        # Raised by every incarnation and by fencing; never goes back.
        self.epochs = dict.fromkeys(REPLICAS, 0)
        # Ephemeral: the epoch in which a replica registered.
        self.registered: dict[int, int] = {}
        # New incarnations that wait to be handled, and whether they may have lost data.
        self.newcomers: dict[int, bool] = {}
        self.checks_joining = True

    def alive(self) -> dict[int, int]:
        return {
            replica: epoch
            for replica, epoch in self.registered.items()
            if epoch == self.epochs[replica]
        }

    def begin_incarnation(self, replica: int, *, is_suspect: bool) -> int:
        self.epochs[replica] += 1
        # A suspect that came back once more before it was handled is still a suspect.
        self.newcomers[replica] = is_suspect
        return self.epochs[replica]

    def register(self, replica: int, epoch: int) -> None:
        if self.epochs[replica] != epoch or replica in self.registered:
            raise Outdated
        self.registered[replica] = epoch

    def write(self, state: State, *, version: int, epochs: dict[int, int]) -> State:
        """Put `state` if the version holds and everyone named is of the epoch given."""
        if version != self.state.version:
            raise Outdated
        if any(self.epochs[replica] != epoch for replica, epoch in epochs.items()):
            raise Outdated
        self.state = replace(state, version=version + 1)
        return self.state

    def change_isr(
        self, leader: int, broker_epoch: int, isr: tuple[int, ...], version: int, joining: dict
    ) -> State:
        """What a leader writes about its own partition."""
        if self.registered.get(leader) != broker_epoch:
            raise Outdated
        epochs = {leader: broker_epoch}
        if self.checks_joining:
            epochs.update(joining)
        return self.write(election.with_isr(self.state, isr), version=version, epochs=epochs)


def decide(store: Store) -> tuple[State, dict[int, int], list[int]] | None:
    """The controller: the state to write, the epochs it counts on, who is handled by it."""
    alive = store.alive()
    nodes = Nodes(
        live=alive.keys(),
        suspects={replica for replica, is_suspect in store.newcomers.items() if is_suspect},
    )
    new = election.repaired(store.state, nodes, min_isr=store.state.min_isr)
    handled = list(store.newcomers)
    if new is None and not handled:
        return None
    state = new or store.state
    return state, {replica: alive[replica] for replica in state.isr}, handled
