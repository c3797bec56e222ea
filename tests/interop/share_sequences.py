"""The same random sequences of share fetches and acknowledgements, on Apache Kafka and here.

    python -m tests.interop.share_sequences --count 300

A sequence is drawn from its seed alone. Both brokers get the same requests, byte for byte, and
have to give the same answers: the ranges that are acquired, their delivery counts, and the
codes of acknowledgements. In the middle of every sequence both brokers are killed (SIGKILL) and
started again; consumers are others after that.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from millstream.errors import KafkaCode
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Fetched,
    ShareMember,
    create_topic,
    produce,
    set_group_options,
)

# Longer than a sequence waits for the crash.
LOCK_MS = 300_000
# In sequences that wait for the end of locks; all before the wait has to be done in this time.
SHORT_LOCK_MS = 3_000
# The locks are over for both, and the records available.
_AFTER_LOCK_SECONDS = 3.5
_WAIT_MS = 150
# What is released by the same request is stored, and available, within this time.
_STORED_MS = 1_000
# After a start the state of partitions is read first; shorter than the shortest lock.
_LOADED_MS = 1_500
# Ends of locks are stored one by one, some time after they count.
_STORED_SECONDS = 5.0
# Those that were too slow, or differed, are repeated with fewer beside them: on a busy machine a
# broker may store, load or acquire later than a step waits. What differs by the brokers' rules
# differs every time.
_AT_ONCE = (12, 6, 3, 1)
# Sequences that have the crash in common.
_BLOCK = 60
MEMBERS = 2
TOO_SLOW = "too slow"

# What both brokers must allow.
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.delivery.count.limit": "2",
    "group.share.min.partition.max.record.locks": "100",
    "group.share.max.share.sessions": "2000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}


class Crashing(Protocol):
    """A broker that can be killed and started again."""

    @property
    def bootstrap(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...


Step = tuple[str, int, list[float]]


@dataclass
class Run:
    """One sequence on one broker. What a member has acquired is known from the answers."""

    members: list[ShareMember]
    client: RawClient
    topic: str
    # By member: offsets that it has, as far as it knows.
    owned: list[set[int]] = field(default_factory=lambda: [set() for _ in range(MEMBERS)])


def steps(seed: int) -> Iterator[Step]:
    """What is done, by which member, and numbers for its details: both brokers get the same."""
    chance = random.Random(seed)
    kinds = ["fetch"] * 5 + ["say"] * 5 + ["say with fetch"] * 2
    kinds += ["produce", "produce", "wrong", "close", "renew"]

    def drawn() -> Step:
        numbers = [chance.random() for _ in range(6)]
        return chance.choice(kinds), chance.randrange(MEMBERS), numbers

    yield "produce", 0, drawn()[2]
    if lock_ms(seed) == LOCK_MS:
        for _ in range(24):
            yield drawn()
        return
    for _ in range(3):
        for _ in range(5):
            yield drawn()
        yield "wait", 0, []


def halves(seed: int) -> tuple[list[Step], list[Step]]:
    """Before and after the crash. Short locks are over before it, on both brokers."""
    found = list(steps(seed))
    ends = [number for number, step in enumerate(found) if step[0] == "wait"]
    middle = ends[0] + 1 if ends else len(found) // 2
    return found[:middle], found[middle:]


def lock_ms(seed: int) -> int:
    return LOCK_MS if seed % 4 else SHORT_LOCK_MS


def begin(bootstrap: str, seed: int, name: str) -> Run:
    chance = random.Random(-seed)
    client = RawClient(bootstrap)
    create_topic(client, name)
    set_group_options(
        client,
        name,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=str(lock_ms(seed)),
        share_delivery_count_limit=str(chance.choice([2, 3, 5])),
        share_partition_max_record_locks=str(chance.choice([100, 100, 2000])),
    )
    run = Run(_joined(bootstrap, name), client, name)
    # The state of the partition is being read: nothing is acquired before.
    for member in run.members:
        member.fetch(wait_ms=500)
    return run


def begin_again(bootstrap: str, name: str) -> Run:
    """After a crash, with other members."""
    return Run(_joined(bootstrap, name), RawClient(bootstrap), name)


def _joined(bootstrap: str, name: str) -> list[ShareMember]:
    members = [ShareMember(bootstrap, name, name) for _ in range(MEMBERS)]
    for member in members:
        member.join()
    return members


def abandon(run: Run) -> None:
    for member in run.members:
        member.close()
    run.client.sock.close()


def end(run: Run) -> None:
    for member in run.members:
        member.leave()
    abandon(run)


def act(run: Run, kind: str, number: int, numbers: Sequence[float]) -> object:
    """Do a step, and return what the broker answered."""
    member, owned = run.members[number], run.owned[number]
    match kind:
        case "produce":
            sizes = [1 + int(n * n * 40) for n in numbers[: 1 + int(numbers[5] * 4)]]
            produce(run.client, run.topic, *sizes)
            return sizes
        case "fetch":
            return _noted(owned, _fetch(member, numbers, [], _WAIT_MS))
        case "load":
            return _noted(owned, _loaded(member))
        case "wait":
            time.sleep(_AFTER_LOCK_SECONDS)
            for each in run.owned:
                each.clear()
            return None
        case "close":
            if number == 0:
                # Without a session of the group left, we read the stored state again, whose
                # ranges are joined; Kafka does so when the connection is closed.
                return None
            owned.clear()
            code = member.close_session() if member.epoch else None
            # Kafka answers before what is given back is stored, and nothing tells when it is.
            time.sleep(0.5)
            return code
    if kind == "wrong":
        first = int(numbers[0] * 60)
        return member.acknowledge((first, first + int(numbers[1] * 8), [ACCEPT]))
    said = _said(owned, numbers, renews=kind == "renew")
    if not said or not member.epoch:
        return None
    if kind == "say with fetch":
        owned -= {n for first, last, _ in said for n in range(first, last + 1)}
        return _noted(owned, _fetch(member, numbers, said, _STORED_MS))
    code = member.acknowledge(*said, renews=kind == "renew")
    if kind != "renew":
        owned -= {n for first, last, _ in said for n in range(first, last + 1)}
    return code


def _loaded(member: ShareMember) -> Fetched:
    """What the first fetch after a start acquires."""
    deadline = time.monotonic() + 30
    while True:
        found = member.fetch(records=1, batch_size=1, wait_ms=_LOADED_MS)
        if not found.codes.get(0) or time.monotonic() > deadline:
            return found
        # The state cannot be read yet, and nothing tells when it can.
        time.sleep(0.1)


def _fetch(
    member: ShareMember,
    numbers: Sequence[float],
    said: list[tuple[int, int, list[int]]],
    wait_ms: int,
) -> Fetched:
    is_first = member.epoch == 0
    return member.fetch(
        records=1 + int(numbers[0] ** 2 * 60),
        batch_size=1 + int(numbers[1] * 50),
        is_exact=numbers[2] < 0.3,
        wait_ms=wait_ms,
        acknowledge=() if is_first else said,
    )


def _noted(owned: set[int], found: Fetched) -> object:
    for first, last, _ in found.ranges:
        owned.update(range(first, last + 1))
    said = {index: code for index, code in found.acknowledged.items() if code}
    return found.code, found.ranges, said


def _said(
    owned: set[int], numbers: Sequence[float], *, renews: bool
) -> list[tuple[int, int, list[int]]]:
    """Acknowledgements of some neighbours that a member has."""
    if not owned:
        return []
    have = sorted(owned)
    first = last = have[int(numbers[0] * len(have))]
    while last + 1 in owned and last - first < numbers[1] * 30:
        last += 1
    if renews:
        return [(first, last, [RENEW])]
    kinds = [ACCEPT, ACCEPT, RELEASE, REJECT]
    if numbers[2] < 0.7:
        return [(first, last, [kinds[int(numbers[3] * 4)]])]
    chance = random.Random(numbers[4])
    return [(first, last, [chance.choice(kinds) for _ in range(first, last + 1)])]


class Compared:
    """One sequence on both brokers."""

    def __init__(self, seed: int, attempt: int) -> None:
        self.seed = seed
        self._name = f"share-{seed}-{attempt}"
        self._runs: list[Run] = []
        self._done: list[str] = []
        # The first difference, with everything that was done before.
        self.problem: str | None = None
        # Was it not compared to its end? See `_is_cut`.
        self.is_cut = False

    def go_to_crash(self, brokers: Sequence[Crashing]) -> None:
        self._runs = [begin(one.bootstrap, self.seed, self._name) for one in brokers]
        self._go(halves(self.seed)[0])

    def go_on(self, brokers: Sequence[Crashing]) -> None:
        for run in self._runs:
            abandon(run)
        if self.problem is not None:
            return
        self._done.append("crash")
        self._runs = [begin_again(one.bootstrap, self._name) for one in brokers]
        loads: list[Step] = [("load", number, []) for number in range(MEMBERS)]
        self._go(loads + halves(self.seed)[1])
        for run in self._runs:
            end(run)

    def _go(self, wanted: Sequence[Step]) -> None:
        since = time.monotonic()
        for step in wanted:
            with ThreadPoolExecutor(2) as side_by_side:
                answers = list(side_by_side.map(act, self._runs, *([part] * 2 for part in step)))
            self._done.append(f"{step[0]} by {step[1]}: {answers[0]}")
            if step[0] in ("wait", "load"):
                since = time.monotonic()
            elif time.monotonic() - since > lock_ms(self.seed) * 0.8 / 1000:
                # On a machine that is too busy, locks end in the middle, at other moments.
                self.problem = TOO_SLOW
                return
            if _is_their_bug(step[0], answers[0]):
                # From here on the epochs of the sessions differ.
                return
            has_crashed = "crash" in self._done
            if has_crashed and lock_ms(self.seed) == SHORT_LOCK_MS and _is_cut(*answers):
                # From here on they acquire different records.
                self.is_cut = True
                return
            if not _are_alike(step[0], answers[0], answers[1], has_crashed=has_crashed):
                done = "\n".join(self._done)
                self.problem = f"seed {self.seed}\n{done}\nhere: {answers[1]}"
                return


def _is_their_bug(kind: str, answer: object) -> bool:
    """Kafka fails where nothing is in flight any more; we say that the records are not acquired."""
    return kind == "wrong" and answer is KafkaCode.UNKNOWN_SERVER_ERROR


def _is_cut(theirs: object, ours: object) -> bool:
    """Kafka stores the end of each record's lock by itself, and does not join the last record of a
    range with those before it. So after a start it may acquire fewer records than we do."""
    match theirs, ours:
        case (code, [*before, (first, last, count)], said), (code_here, [*others, one], said_here):
            is_longer = one[0] == first and one[1] > last and one[2] == count
            return (code, before, said) == (code_here, others, said_here) and is_longer
    return False


def _are_alike(kind: str, theirs: object, ours: object, *, has_crashed: bool) -> bool:
    """Of records that nobody has acquired, Kafka says "not acquired" where it knows any others,
    and "never fetched" where they are behind all it knows. After a start it does not forget the
    finished records behind a gap before something new is fetched; we do."""
    if kind == "wrong" and has_crashed and theirs == KafkaCode.INVALID_REQUEST:
        return ours in (KafkaCode.INVALID_REQUEST, KafkaCode.INVALID_RECORD_STATE)
    return theirs == ours


def differences(theirs: Crashing, ours: Crashing, seeds: Sequence[int]) -> tuple[list[str], int]:
    """What differs each time, and how many sequences were compared to the end."""
    left, problems = list(seeds), dict[int, str]()
    for attempt, at_once in enumerate(_AT_ONCE):
        problems = {}
        for first in range(0, len(left), _BLOCK):
            block = [Compared(seed, attempt) for seed in left[first : first + _BLOCK]]
            _compare(block, (theirs, ours), at_once)
            problems |= {one.seed: one.problem for one in block if one.problem is not None}
            cut = sum(one.is_cut for one in block)
            print(f"{len(block)} compared, {cut} of them up to a range that Kafka cuts", flush=True)
        left = list(problems)
        print(f"to be repeated: {left}", flush=True)
    different = [problem for problem in problems.values() if problem != TOO_SLOW]
    return different, len(seeds) - len(problems) + len(different)


def _compare(block: Sequence[Compared], brokers: Sequence[Crashing], at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda one: one.go_to_crash(brokers), block))
        # Kafka answers some requests before their changes are stored.
        time.sleep(_STORED_SECONDS)
        for broker in brokers:
            broker.kill()
        list(pool.map(lambda broker: broker.start(), brokers))
        list(pool.map(lambda one: one.go_on(brokers), block))


def main() -> None:
    from tests.support.apache_kafka import ApacheKafka
    from tests.support.node import MillstreamNode

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.count)
    options = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(Path(folder) / "kafka", settings=SETTINGS) as kafka,
        MillstreamNode(Path(folder) / "node", *options) as node,
    ):
        found, compared = differences(kafka, node, seeds)
    print("\n\n".join(found))
    print(f"{compared} of {len(seeds)} sequences compared, {len(found)} with a difference")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
