"""Streams groups at random: members come, leave and die, responses are lost, the node restarts.

No task ever runs twice, no process holds a task twice, and in the end every task runs.

Covers coordinators/streams/reconcile.py, coordinators/streams/epochs.py,
coordinators/streams/heartbeat.py.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from millstream.coordinators.codecs.streams_changes import TaskAssignment
from millstream.coordinators.decision import DeadlineKey, DeadlineKind
from millstream.coordinators.groups import requests
from millstream.coordinators.streams.tasks import Task, each_task
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.streams.streams_world import StreamsWorld, all_topics
from tests.coordinators.world import GROUP, REBALANCE_MS, image_of

PARTITIONS = 3
STEPS = 120
FENCED = (KafkaCode.FENCED_MEMBER_EPOCH, KafkaCode.UNKNOWN_MEMBER_ID)
NOTHING = TaskAssignment()


def tasks_in(tasks: TaskAssignment) -> set[tuple[str, Task]]:
    """With their roles."""
    return {
        (role, task)
        for role, found in (("active", tasks.active), ("standby", tasks.standby))
        for task in each_task(found)
    }


@dataclass
class Client:
    """A thread of Kafka Streams, as Java's reports and reconciles."""

    member_id: str
    epoch: int = 0
    # What it should own, by the last response; what it owns by its last complete step.
    target: TaskAssignment = NOTHING
    owned: TaskAssignment = NOTHING
    # What it last reported; None: it reports with its next heartbeat, whatever it owns.
    reported: TaskAssignment | None = None
    # What it holds in truth: fewer tasks than `owned` while it revokes.
    holds: set[tuple[str, Task]] = field(default_factory=set)

    def revoke(self) -> None:
        self.holds &= tasks_in(self.target)

    def assign(self) -> None:
        self.revoke()
        self.holds |= tasks_in(self.target)
        self.owned = self.target

    def start_over(self) -> None:
        self.epoch = 0
        self.target = self.owned = NOTHING
        self.reported = None
        self.holds = set()

    def beat(self, world: StreamsWorld, *, is_lost: bool = False) -> None:
        parts = {}
        if self.epoch != 0 and self.owned != self.reported:
            parts = {"active": self.owned.active, "standby": self.owned.standby, "warmup": {}}
            self.reported = self.owned
        try:
            reply = world.report(self.member_id, self.epoch, **parts)
        except KafkaError as error:
            if error.code not in FENCED:
                raise
            self.start_over()
            return
        if is_lost:
            # It does not know what the coordinator knows, and will report everything again.
            self.reported = None
            return
        self.epoch = reply.epoch
        if reply.tasks is not None:
            self.target = reply.tasks


class Application:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = StreamsWorld(checks_replay=False)
        self.world.image = image_of(**all_topics(PARTITIONS))
        standbys = str(self.chance.choice((0, 1, 2)))
        self.world.image.group_overrides[GROUP] = {"streams.num.standby.replicas": standbys}
        self.clients: list[Client] = []
        self._count = 0

    def come(self) -> None:
        self._count += 1
        process = self.chance.choice("abc")
        self.clients.append(Client(f"{process}{self._count}"))

    def die(self, client: Client) -> None:
        """Killed; its session ends later, but nobody can observe anything in between."""
        self.clients.remove(client)
        key = DeadlineKey(DeadlineKind.MEMBER_SESSION, GROUP, client.member_id)
        self.world.step(lambda state, env: requests.deadline_is_over(state, key, env))

    def leave(self, client: Client) -> None:
        if client.epoch == 0:
            # It does not know whether it has joined.
            self.die(client)
            return
        self.clients.remove(client)
        if client.member_id in self.world.streams().members:
            self.world.report(client.member_id, -1)

    def step(self) -> None:
        if not self.clients or self.chance.random() < 0.06:
            self.come()
        client = self.chance.choice(self.clients)
        action = self.chance.random()
        if action < 0.5:
            client.beat(self.world, is_lost=self.chance.random() < 0.15)
        elif action < 0.65:
            client.revoke()
        elif action < 0.9:
            client.assign()
        elif action < 0.93:
            self.die(client)
        elif action < 0.96:
            self.leave(client)
        elif action < 0.98:
            self.world.restart()
        else:
            client.start_over()
        self.world.now_ms += 10

    def check(self) -> None:
        active = Counter(
            task for each in self.clients for role, task in each.holds if role == "active"
        )
        assert [task for task, count in active.items() if count > 1] == []
        held = Counter((each.member_id[0], task) for each in self.clients for _, task in each.holds)
        assert [where for where, count in held.items() if count > 1] == []

    def settle(self) -> None:
        if not self.clients:
            self.come()
        # Long enough for members that nobody can judge after a restart to be removed.
        for _ in range(50):
            self.world.pass_time(REBALANCE_MS // 30)
            for client in self.clients:
                client.beat(self.world)
                client.assign()
                self.check()


@pytest.mark.parametrize("seed", range(60))
def test_no_task_runs_twice_and_in_the_end_all_run(seed: int) -> None:
    application = Application(seed)
    for _ in range(STEPS):
        application.step()
        application.check()
    application.settle()
    running = {
        task for each in application.clients for role, task in each.holds if role == "active"
    }
    assert running == {(each, partition) for each in "01" for partition in range(PARTITIONS)}
    assert application.world.streams().state_name == "Stable"
    application.world.check_replay()
