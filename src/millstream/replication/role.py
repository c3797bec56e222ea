"""What the cluster's state says about one partition, as far as a replica needs it."""

from dataclasses import dataclass

from millstream.cluster.state import PartitionState


@dataclass(frozen=True, slots=True)
class Role:
    """`version` is that of the state in the coordination store; `unclean_epoch` the leader epoch
    of the last unclean election, -1 if there was none."""

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    version: int
    unclean_epoch: int = -1

    @classmethod
    def none(cls) -> "Role":
        """Before anything is known, and while the node is fenced."""
        return cls(-1, -1, (), (), 1, -1)

    @classmethod
    def of(cls, state: PartitionState) -> "Role":
        return cls(
            state.leader,
            state.leader_epoch,
            state.replicas,
            state.isr,
            state.min_isr,
            state.version,
            state.unclean_epoch,
        )
