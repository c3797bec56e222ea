"""A shard with a streams group: a word count of two subtopologies, and its members.

Subtopology 0 reads `orders` and writes a repartition topic; 1 counts, with a changelog.
"""

from dataclasses import dataclass, replace
from typing import Any

from millstream.coordinators.codecs.streams_changes import (
    InternalTopic,
    Subtopology,
    Topology,
)
from millstream.coordinators.groups import requests
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.streams.heartbeat import StreamsHeartbeat, StreamsReply
from tests.coordinators.world import GROUP, REBALANCE_MS, SETTINGS, World, image_of

REPARTITION = "app-count-repartition"
CHANGELOG = "app-count-changelog"
# A new group does not wait for more members, and computes every target at once.
AT_ONCE = replace(
    SETTINGS,
    streams=replace(SETTINGS.streams, initial_rebalance_delay_ms=0, assignment_interval_ms=0),
)


def subtopology(number: int, *sources: str, **changes: Any) -> Subtopology:
    return replace(Subtopology(str(number), sources, (), (), (), (), ()), **changes)


def word_count(partitions: int = 0) -> Topology:
    """`partitions` of the repartition topic; 0: as many as the source has."""
    return Topology(
        0,
        (
            subtopology(0, "orders", repartition_sink_topics=(REPARTITION,)),
            subtopology(
                1,
                repartition_source_topics=(InternalTopic(REPARTITION, partitions, 0),),
                changelog_topics=(
                    InternalTopic(CHANGELOG, 0, 0, (("cleanup.policy", "compact"),)),
                ),
            ),
        ),
    )


WORD_COUNT = word_count()


def all_topics(partitions: int = 2) -> dict[str, int]:
    return {"orders": partitions, REPARTITION: partitions, CHANGELOG: partitions}


@dataclass
class StreamsWorld(World):
    def __post_init__(self) -> None:
        self.image = image_of(**all_topics())
        self.settings = AT_ONCE

    def report(self, member_id: str, epoch: int, /, **changes: Any) -> StreamsReply:
        """A heartbeat; the process is named after the member's first letter."""
        request = StreamsHeartbeat(GROUP, member_id, epoch, "c", "/127.0.0.1")
        if epoch == 0:
            request = replace(
                request,
                rebalance_timeout_ms=REBALANCE_MS,
                topology=WORD_COUNT,
                process_id=member_id[0],
                active={},
                standby={},
                warmup={},
                client_tags=(),
            )
        request = replace(request, **changes)
        ticket = self.step(lambda state, env: requests.streams_heartbeat(state, request, env))
        reply = self.replies[ticket]
        assert isinstance(reply, StreamsReply)
        return reply

    def confirm(self, reply: StreamsReply) -> StreamsReply:
        """The member has taken up the tasks that the reply gives it."""
        assert reply.tasks is not None
        return self.report(
            reply.member_id,
            reply.epoch,
            active=reply.tasks.active,
            standby=reply.tasks.standby,
            warmup={},
        )

    def settle(self, *replies: StreamsReply) -> dict[str, StreamsReply]:
        """Let members report until nothing changes; the last tasks of each."""
        last = {reply.member_id: reply for reply in replies}
        for _ in range(20):
            before = len(self.log)
            for member_id, reply in last.items():
                after = self.confirm(reply)
                last[member_id] = replace(after, tasks=after.tasks or reply.tasks)
            if len(self.log) == before:
                return last
        raise AssertionError("the group does not settle")

    def streams(self) -> StreamsGroup:
        group = self.state.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group
