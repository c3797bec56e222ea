"""Which replicas are in sync and which one leads: a partition's next state. Pure.

Every function takes a partition's state and returns the one that should follow, or None
if there is nothing to do. Nothing here writes, does I/O or knows the time; the writer adds
the versions and epochs that make a write safe.

ELR, the eligible leader replicas: a replica that leaves an ISR which is then smaller than
`min_isr` still has everything that is committed, because such an ISR commits nothing more.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from millstream.cluster.state import NO_LEADER, LogEnd, PartitionState


@dataclass(frozen=True, slots=True)
class Nodes:
    """`live` are registered; `stopping` are among them, and give up what others can take over.

    `suspects` may have lost data since they were last in sync.
    """

    live: Set[int]
    stopping: Set[int] = frozenset()
    suspects: Set[int] = frozenset()


def repaired(state: PartitionState, nodes: Nodes, *, min_isr: int) -> PartitionState | None:
    """The state after removing dead replicas and electing one that can lead."""
    changed = _with_min_isr(state, min_isr)
    changed = _without_absent(changed, nodes)
    changed = _without_suspects(changed, nodes.suspects)
    changed = _with_leader(changed, nodes)
    return None if changed == state else changed


def with_isr(state: PartitionState, isr: Sequence[int]) -> PartitionState:
    """Another ISR, and the resulting ELR."""
    in_sync = tuple(replica for replica in state.replicas if replica in isr)
    if len(in_sync) >= state.min_isr:
        return replace(state, isr=in_sync, elr=(), last_known_elr=())
    former = {*state.elr, *state.isr} - set(in_sync)
    return replace(state, isr=in_sync, elr=_in_order(state, former))


def without_elr(state: PartitionState) -> PartitionState:
    """For `eligible.leader.replicas.enable=false`: only those that were in sync last may lead."""
    return replace(state, elr=(), last_known_elr=()) if state.isr and state.elr else state


def preferred(state: PartitionState, nodes: Nodes) -> PartitionState | None:
    """The first replica of the assignment leads, if it can and does not."""
    first = target_replicas(state)[0]
    if first == state.leader or first not in state.isr or first not in _electable(nodes):
        return None
    return _led_by(state, first)


def uncleanly_elected(state: PartitionState, nodes: Nodes) -> PartitionState | None:
    """The first live replica in the order of the assignment leads, whatever it has lost: at a
    person's request, or where `unclean.leader.election.enable` says so. Nothing compares
    how long the logs are, but one that a move adds may have nothing yet and comes last."""
    if state.leader != NO_LEADER:
        return None
    for replica in (*original_replicas(state), *state.adding):
        if replica in nodes.live:
            elected = _led_by(replace(state, isr=(replica,), elr=(), last_known_elr=()), replica)
            return replace(elected, unclean_epoch=elected.leader_epoch)
    return None


def given_up(state: PartitionState, replica: int, nodes: Nodes) -> PartitionState | None:
    """A replica's log is damaged: it must not lead, nor count as one that has the records.

    The epoch changes even if the leader stays: what the replica fetched in the previous epoch
    would let it join again at once. None if no other replica leads or can lead.
    """
    staying = [each for each in state.isr if each != replica]
    changed = _without_suspects(with_isr(state, staying), {replica})
    if state.leader == replica:
        changed = _with_leader(changed, nodes)
        return None if changed.leader == NO_LEADER else changed
    return _led_by(changed, state.leader) if state.leader in nodes.live else None


def awaited_for_recovery(state: PartitionState) -> tuple[int, ...]:
    """Whose logs must be compared before a replica may lead; empty if that is not needed."""
    if state.leader != NO_LEADER or state.isr or state.elr:
        return ()
    return state.last_known_elr


def recovered(state: PartitionState, ends: Mapping[int, LogEnd]) -> PartitionState:
    """All replicas that once had everything may have lost some of it: the longest log leads."""
    assert set(ends) == set(awaited_for_recovery(state)), "the caller has asked all of them"
    in_order = [replica for replica in state.replicas if replica in ends]
    # Among equals, the first of the assignment.
    longest = max(in_order, key=lambda one: (ends[one].last_epoch, ends[one].next_offset))
    return _led_by(replace(state, isr=(longest,), elr=(), last_known_elr=()), longest)


# -- reassignment -------------------------------------------------------------------------


def reassigned(state: PartitionState, target: Sequence[int]) -> PartitionState:
    """Moving to other replicas: the old ones stay until the new ones are in sync."""
    original = original_replicas(state)
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    return replace(state, replicas=(*target, *removing), adding=adding, removing=removing)


def arrived(state: PartitionState, nodes: Nodes) -> PartitionState | None:
    """The end of a reassignment, once every new replica is in sync."""
    target = target_replicas(state)
    if not (state.adding or state.removing) or not set(target) <= set(state.isr):
        return None
    return _settled(state, target, nodes)


def cancelled(state: PartitionState, nodes: Nodes) -> PartitionState | None:
    """Back to the previous replicas; None if none of them is in sync any more."""
    original = original_replicas(state)
    if not set(original) & set(state.isr):
        return None
    return _settled(state, original, nodes)


def _settled(state: PartitionState, replicas: tuple[int, ...], nodes: Nodes) -> PartitionState:
    """No move is left.

    If a replica goes, the epoch changes even if the leader stays: should the replica soon come
    back, with an empty log, what it fetched before would let it join the ISR at once.
    """
    settled = replace(state, replicas=replicas, adding=(), removing=())
    settled = with_isr(settled, state.isr)
    if settled.leader not in replicas:
        return _with_leader(settled, nodes)
    return settled if set(state.replicas) == set(replicas) else _led_by(settled, settled.leader)


def target_replicas(state: PartitionState) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica not in state.removing)


def original_replicas(state: PartitionState) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica not in state.adding)


# -- steps --------------------------------------------------------------------------------


def _with_min_isr(state: PartitionState, min_isr: int) -> PartitionState:
    if state.min_isr == min_isr:
        return state
    # A leader that may now commit alone must not leave behind a replica that can be elected
    # without its commits. Without any ISR nothing is committed, and only the ELR is left.
    elr = () if state.isr else state.elr
    return replace(state, min_isr=min_isr, elr=elr)


def _without_absent(state: PartitionState, nodes: Nodes) -> PartitionState:
    trusted = nodes.live - nodes.suspects
    present = [r for r in state.isr if r in trusted and r in state.replicas]
    staying = [replica for replica in present if replica not in nodes.stopping]
    # The last replica in sync leads until it is really gone.
    wanted = staying or present
    return state if tuple(wanted) == state.isr else with_isr(state, wanted)


def _without_suspects(state: PartitionState, suspects: Set[int]) -> PartitionState:
    lost = [replica for replica in state.elr if replica in suspects]
    if not lost:
        return state
    return replace(
        state,
        elr=tuple(replica for replica in state.elr if replica not in suspects),
        last_known_elr=_in_order(state, {*state.last_known_elr, *lost}),
    )


def _with_leader(state: PartitionState, nodes: Nodes) -> PartitionState:
    if state.leader in state.isr and state.leader in nodes.live:
        return state
    for replica in state.replicas:
        if replica in state.isr and replica in nodes.live:
            return _led_by(state, replica)
    for replica in state.replicas:
        if replica in state.elr and replica in nodes.live:
            return _led_by(with_isr(state, (replica,)), replica)
    return state if state.leader == NO_LEADER else _led_by(state, NO_LEADER)


def _led_by(state: PartitionState, leader: int) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)


def _electable(nodes: Nodes) -> Set[int]:
    return nodes.live - nodes.stopping


def _in_order(state: PartitionState, replicas: Set[int]) -> tuple[int, ...]:
    return tuple(replica for replica in state.replicas if replica in replicas)
