"""The same random sequences of share fetches and acknowledgements, on Apache Kafka and here.

    python -m tests.interop.share_sequences --count 300

A sequence is drawn from its seed alone. Both brokers get the same requests, byte for byte, and
have to give the same answers: the ranges that are acquired, their delivery counts, and the
codes of acknowledgements. In the middle of every sequence both brokers are killed (SIGKILL) and
started again; consumers are others after that.

How fast a broker is must not matter. So nothing is asked while an answer depends on whether an
earlier change is already stored: what is given back without being waited for is given back when
nothing else is available, and then fetched. An empty answer says only that nothing was there in
time: where the other broker found something, it is asked again. Locks that end must not end in
between: a sequence that was too slow for its locks is repeated with longer ones.
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
from millstream.model import SHARE_STATE_TOPIC
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
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

# No lock of this length ends.
LOCK_MS = 3_600_000
# In sequences that wait for the end of locks; all before the wait has to be done in this time. It
# doubles with each attempt, and so does what is waited for beyond it.
SHORT_LOCK_MS = 3_000
_BEYOND_LOCK_MS = 500
_WAIT_MS = 150
# For what is given back, or released by the same request, to be available. If it cannot be
# delivered any more, so long is waited in vain.
_STORED_MS = 1_000
# For what the other broker has found.
_LATE_MS = 10_000
_LOADED_SECONDS_MAX = 120
# Ends of locks are stored one by one, some time after they count: until nothing more is written.
_QUIET_SECONDS = 3.0
_QUIET_SECONDS_MAX = 120
# Those that were too slow, or differed, are repeated with fewer beside them. What differs by the
# brokers' rules differs every time.
_AT_ONCE = (12, 6, 3, 1)
# Sequences that have the crash in common.
_BLOCK = 60
MEMBERS = 2
# So few that it matters.
FEW_LOCKS = 100
# More records than a sequence produces, and fewer than it mostly does.
_ALL, _SOME = 2_000, 50
TOO_SLOW = "too slow"
_LATEST = -1

# What both brokers must allow.
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.max.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.delivery.count.limit": "2",
    "group.share.min.partition.max.record.locks": "100",
    "group.share.max.share.sessions": "2000",
    # Members send no heartbeats.
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
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
    kinds = ["fetch"] * 5 + ["say"] * 5 + ["say with fetch", "finish with fetch"]
    kinds += ["produce", "produce", "wrong", "close", "renew"]

    def drawn() -> Step:
        numbers = [chance.random() for _ in range(6)]
        return chance.choice(kinds), chance.randrange(MEMBERS), numbers

    yield "produce", 0, drawn()[2]
    yield "load", 0, []
    if not has_short_locks(seed):
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


def has_short_locks(seed: int) -> bool:
    return seed % 4 == 0


def lock_ms(seed: int, attempt: int) -> int:
    return SHORT_LOCK_MS << attempt if has_short_locks(seed) else LOCK_MS


def in_flight_max(seed: int) -> int:
    return random.Random(seed ^ 0x5EED).choice([FEW_LOCKS, FEW_LOCKS, 2000])


def begin(bootstrap: str, seed: int, attempt: int, name: str) -> Run:
    chance = random.Random(-seed)
    client = RawClient(bootstrap)
    create_topic(client, name)
    set_group_options(
        client,
        name,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms=str(lock_ms(seed, attempt)),
        share_delivery_count_limit=str(chance.choice([2, 3, 5])),
        share_partition_max_record_locks=str(in_flight_max(seed)),
    )
    return Run(_joined(bootstrap, name), client, name)


def begin_again(bootstrap: str, name: str) -> Run:
    """After a crash, with other members. How many records are in flight does not matter from here
    on: Kafka still counts those that were finished behind others; we do not."""
    client = RawClient(bootstrap)
    set_group_options(client, name, share_partition_max_record_locks=str(_ALL))
    return Run(_joined(bootstrap, name), client, name)


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
        case "fetch" | "take all":
            return _noted(owned, _fetch(member, kind, numbers, wait_ms=_WAIT_MS))
        case "take what is back":
            return _noted(owned, _fetch(member, kind, numbers, wait_ms=_STORED_MS))
        case "load":
            return _noted(owned, _loaded(member))
        case "wait":
            time.sleep(numbers[0])
            for each in run.owned:
                each.clear()
            return None
        case "close":
            owned.clear()
            return member.close_session() if member.epoch else None
    if kind == "wrong":
        first = int(numbers[0] * 60)
        return member.acknowledge((first, first + int(numbers[1] * 8), [ACCEPT]))
    said = _said(owned, numbers, kind)
    if not said or not member.epoch:
        return None
    if kind in ("say with fetch", "finish with fetch"):
        owned -= {n for first, last, _ in said for n in range(first, last + 1)}
        return _noted(owned, _fetch(member, kind, numbers, wait_ms=_STORED_MS, said=said))
    code = member.acknowledge(*said, renews=kind == "renew")
    if kind != "renew":
        owned -= {n for first, last, _ in said for n in range(first, last + 1)}
    return code


def fetch_again(run: Run, kind: str, number: int, numbers: Sequence[float]) -> object:
    """A fetch that found nothing, once more, and without what it acknowledged."""
    again = _fetch(run.members[number], kind, numbers, wait_ms=_LATE_MS)
    return _noted(run.owned[number], again)


def _loaded(member: ShareMember) -> Fetched:
    """What the first fetch after a start acquires; something is there."""
    deadline = time.monotonic() + _LOADED_SECONDS_MAX
    while True:
        found = member.fetch(records=1, batch_size=1, wait_ms=_STORED_MS)
        if found.ranges or time.monotonic() > deadline:
            return found
        # The state is being read, or cannot be read yet, and nothing tells when it can.
        time.sleep(0.1)


def _fetch(
    member: ShareMember,
    kind: str,
    numbers: Sequence[float],
    *,
    wait_ms: int,
    said: Sequence[tuple[int, int, list[int]]] = (),
) -> Fetched:
    if kind == "take all":
        return member.fetch(records=_ALL, batch_size=_ALL, wait_ms=wait_ms)
    if kind == "take what is back":
        return member.fetch(records=_ALL, batch_size=_SOME, wait_ms=wait_ms)
    is_first = member.epoch == 0
    return member.fetch(
        records=1 + int(numbers[0] ** 2 * 60),
        batch_size=1 + int(numbers[1] * _SOME),
        is_exact=numbers[2] < 0.3,
        wait_ms=wait_ms,
        acknowledge=() if is_first else said,
    )


def _noted(owned: set[int], found: Fetched) -> object:
    for first, last, _ in found.ranges:
        owned.update(range(first, last + 1))
    said = {index: code for index, code in found.acknowledged.items() if code}
    return found.code, found.ranges, said


def _said(owned: set[int], numbers: Sequence[float], kind: str) -> list[tuple[int, int, list[int]]]:
    """Acknowledgements of some neighbours that a member has."""
    if not owned:
        return []
    have = sorted(owned)
    first = last = have[int(numbers[0] * len(have))]
    while last + 1 in owned and last - first < numbers[1] * 30:
        last += 1
    if kind == "renew":
        return [(first, last, [RENEW])]
    finishing = [ACCEPT, ACCEPT, REJECT, REJECT]
    kinds = finishing if kind == "finish with fetch" else [ACCEPT, ACCEPT, RELEASE, REJECT]
    if numbers[2] < 0.7:
        return [(first, last, [kinds[int(numbers[3] * 4)]])]
    chance = random.Random(numbers[4])
    return [(first, last, [chance.choice(kinds) for _ in range(first, last + 1)])]


class Compared:
    """One sequence on both brokers."""

    def __init__(self, seed: int, attempt: int) -> None:
        self.seed = seed
        self._attempt = attempt
        self._name = f"share-{seed}-{attempt}"
        self._runs: list[Run] = []
        self._done: list[str] = []
        # Locks began after this.
        self._since = 0.0
        self._has_crashed = False
        # Not after `_is_their_bug`: the epochs differ from there on, until the next sessions.
        self._are_sessions_alike = True
        # The first difference, with everything that was done before.
        self.problem: str | None = None
        # Was it not compared to its end? See `_is_cut`.
        self.is_cut = False

    @property
    def _is_over(self) -> bool:
        return self.problem is not None or self.is_cut or not self._are_sessions_alike

    def go_to_crash(self, brokers: Sequence[Crashing]) -> None:
        self._runs = [begin(one.bootstrap, self.seed, self._attempt, self._name) for one in brokers]
        self._go(halves(self.seed)[0])

    def go_on(self, brokers: Sequence[Crashing]) -> None:
        for run in self._runs:
            abandon(run)
        if self.problem is not None:
            return
        self._done.append("crash")
        self._has_crashed = self._are_sessions_alike = True
        self._runs = [begin_again(one.bootstrap, self._name) for one in brokers]
        # So that something is there to be found.
        one_record: Step = ("produce", 0, [0.0] * 6)
        self._go([one_record, ("load", 0, []), *halves(self.seed)[1]])
        for run in self._runs:
            end(run)

    def _go(self, wanted: Sequence[Step]) -> None:
        self._since = time.monotonic()
        for kind, number, numbers in wanted:
            match kind:
                case "close":
                    self._close(number)
                case "say with fetch":
                    self._take_all(number)
                    self._do(kind, number, numbers)
                case "finish with fetch":
                    if in_flight_max(self.seed) == FEW_LOCKS and not self._has_crashed:
                        # What is finished makes room, but not before it is stored.
                        self._take_all(number)
                    self._do(kind, number, numbers)
                case "wait":
                    milliseconds = lock_ms(self.seed, self._attempt)
                    milliseconds += _BEYOND_LOCK_MS << self._attempt
                    self._do(kind, number, [milliseconds / 1000])
                case _:
                    self._do(kind, number, numbers)
            if self._is_over:
                return

    def _close(self, number: int) -> None:
        """Kafka answers before what is given back is stored, and nothing tells when it is."""
        if number == 0:
            # Without a session of the group left, we read the stored state again, whose
            # ranges are joined; Kafka does so when the connection is closed.
            return
        had_any = bool(self._runs[0].owned[number])
        self._take_all(0)
        self._do("close", number, [])
        if had_any:
            self._do("take what is back", 0, [])

    def _take_all(self, number: int) -> None:
        """Until nothing is available."""
        before = -1
        while not self._is_over and before != len(self._runs[0].owned[number]):
            before = len(self._runs[0].owned[number])
            self._do("take all", number, [])

    def _do(self, kind: str, number: int, numbers: list[float]) -> None:
        """One step on both."""
        if self._is_over:
            return
        theirs, ours = self._answers(kind, number, numbers)
        self._done.append(f"{kind} by {number}: {theirs}")
        if kind in ("wait", "load"):
            self._since = time.monotonic()
        elif time.monotonic() - self._since > lock_ms(self.seed, self._attempt) * 0.8 / 1000:
            # On a machine that is too busy, locks end in the middle, at other moments.
            self.problem = TOO_SLOW
        elif _is_their_bug(kind, theirs):
            self._are_sessions_alike = False
        elif self._has_crashed and has_short_locks(self.seed) and _are_cut(theirs, ours):
            # The same records, in more ranges.
            pass
        elif self._has_crashed and has_short_locks(self.seed) and _is_cut(theirs, ours):
            # From here on they acquire different records.
            self.is_cut = True
        elif not _are_alike(kind, theirs, ours, has_crashed=self._has_crashed):
            done = "\n".join(self._done)
            self.problem = f"seed {self.seed}\n{done}\nhere: {ours}"

    def _answers(self, kind: str, number: int, numbers: list[float]) -> tuple[object, object]:
        with ThreadPoolExecutor(2) as side_by_side:
            asked = [side_by_side.submit(act, run, kind, number, numbers) for run in self._runs]
            theirs, ours = (one.result() for one in asked)
        if _has_found_nothing(theirs, ours):
            theirs = _late(theirs, fetch_again(self._runs[0], kind, number, numbers))
        elif _has_found_nothing(ours, theirs):
            ours = _late(ours, fetch_again(self._runs[1], kind, number, numbers))
        return theirs, ours


def _has_found_nothing(one: object, other: object) -> bool:
    """Did a fetch find nothing where the other did, with the same codes?"""
    match one, other:
        case (code, [], said), (other_code, [_, *_], other_said):
            return (code, said) == (other_code, other_said)
    return False


def _late(first: object, again: object) -> object:
    """The answer of a fetch that was repeated, with what the first said of acknowledgements."""
    match first, again:
        case (_, _, said), (code, ranges, _):
            return code, ranges, said
    raise AssertionError(f"{first} and {again} are no answers to fetches")


def _is_their_bug(kind: str, answer: object) -> bool:
    """Kafka fails where nothing is in flight any more; we say that the records are not acquired."""
    return kind == "wrong" and answer is KafkaCode.UNKNOWN_SERVER_ERROR


def _are_cut(theirs: object, ours: object) -> bool:
    """As `_is_cut`, where the answer has the rest of the range, too."""
    match theirs, ours:
        case (code, [*ranges], said), (code_here, [*ranges_here], said_here):
            is_same = _counts(ranges) == _counts(ranges_here)
            return is_same and (code, said) == (code_here, said_here)
    return False


def _counts(ranges: Sequence[tuple[int, int, int]]) -> dict[int, int]:
    """How often each record was delivered."""
    return {n: count for first, last, count in ranges for n in range(first, last + 1)}


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
            print(f"{len(block)} compared, {cut} of them up to where Kafka must differ", flush=True)
        left = list(problems)
        if not left:
            break
        print(f"to be repeated: {left}", flush=True)
    different = [problem for problem in problems.values() if problem != TOO_SLOW]
    return different, len(seeds) - len(problems) + len(different)


def _compare(block: Sequence[Compared], brokers: Sequence[Crashing], at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda one: one.go_to_crash(brokers), block))
        # Kafka answers some requests before their changes are stored.
        list(pool.map(lambda broker: _wait_until_quiet(broker.bootstrap), brokers))
        for broker in brokers:
            broker.kill()
        list(pool.map(lambda broker: broker.start(), brokers))
        list(pool.map(lambda one: one.go_on(brokers), block))


def _wait_until_quiet(bootstrap: str) -> None:
    """Until nothing is written to the topic of the state any more."""
    rows = [
        ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
        for index in range(int(SETTINGS["share.coordinator.state.topic.num.partitions"]))
    ]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=SHARE_STATE_TOPIC, partitions=rows)]
    )
    ends: list[int] = []
    began = changed_at = time.monotonic()
    with RawClient(bootstrap) as client:
        while time.monotonic() - changed_at < _QUIET_SECONDS:
            assert time.monotonic() - began < _QUIET_SECONDS_MAX, "the state changes all the time"
            [topic] = client.ask(request, 6).topics
            found = [row.offset for row in topic.partitions]
            if found != ends:
                ends, changed_at = found, time.monotonic()
            # Nothing tells of the last write.
            time.sleep(0.1)


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
