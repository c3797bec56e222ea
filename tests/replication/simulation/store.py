"""The coordination store in the simulation: one partition's state, and who is registered.

Its transactions have the checks of the real ones; `controller` decides what is written.
"""

from dataclasses import dataclass, replace

REPLICAS = (1, 2, 3)
NOBODY = -1


@dataclass(frozen=True)
class State:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_isr: int
    version: int = 0


class Outdated(Exception):
    """A check failed: nothing was written."""


class Store:
    def __init__(self, min_isr: int) -> None:
        self.state = State(NOBODY, 0, REPLICAS, (), min_isr)
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
        return self.write(with_isr(self.state, isr), version=version, epochs=epochs)


def with_isr(state: State, isr: tuple[int, ...]) -> State:
    """Another ISR, and the eligible replicas that follow from it."""
    elr: tuple[int, ...] = ()
    if len(isr) < state.min_isr:
        elr = tuple(r for r in REPLICAS if r in (*state.elr, *state.isr) and r not in isr)
    return replace(state, isr=isr, elr=elr)


def decide(store: Store) -> tuple[State, dict[int, int], list[int]] | None:
    """The controller: the state to write, the epochs it counts on, who is handled by it."""
    state, alive = store.state, store.alive()
    # Whoever is not alive, or has a new incarnation, is in no ISR and leads nothing.
    gone = [r for r in REPLICAS if r not in alive]
    lost = [r for r, is_suspect in store.newcomers.items() if is_suspect]
    handled = list(store.newcomers)
    new = with_isr(state, tuple(r for r in state.isr if r not in gone))
    new = replace(new, elr=tuple(r for r in new.elr if r not in lost))
    leader = state.leader
    if leader not in new.isr:
        leader = next((r for r in REPLICAS if r in new.isr), NOBODY)
        if leader == NOBODY:
            leader = next((r for r in REPLICAS if r in new.elr and r in alive), NOBODY)
            if leader != NOBODY:
                new = with_isr(new, (leader,))
    if leader != state.leader:
        new = replace(new, leader=leader, leader_epoch=state.leader_epoch + 1)
    if new == state and not handled:
        return None
    return new, {r: alive[r] for r in new.isr}, handled
