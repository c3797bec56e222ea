"""The same random sequences of share fetches and acknowledgements, on Apache Kafka and here.

    python -m tests.interop.share_sequences --count 300

A sequence is drawn from its seed alone. Both brokers get the same requests, byte for byte, and
have to give the same answers: the ranges that are acquired, their delivery counts, and the
codes of acknowledgements.
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

LOCK_MS = 30_000
# In sequences that wait for the end of locks; all before the wait has to be done in this time.
SHORT_LOCK_MS = 3_000
# The locks are over for both, and the records available.
_AFTER_LOCK_SECONDS = 3.5
_WAIT_MS = 150
_AT_ONCE = 12
MEMBERS = 2
TOO_SLOW = "too slow"

# What both brokers must allow.
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.delivery.count.limit": "2",
    "group.share.min.partition.max.record.locks": "100",
    "group.share.max.share.sessions": "2000",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
}


@dataclass
class Run:
    """One sequence on one broker. What a member has acquired is known from the answers."""

    members: list[ShareMember]
    client: RawClient
    topic: str
    # By member: offsets that it has, as far as it knows.
    owned: list[set[int]] = field(default_factory=lambda: [set() for _ in range(MEMBERS)])


def steps(seed: int) -> Iterator[tuple[str, int, list[float]]]:
    """What is done, by which member, and numbers for its details: both brokers get the same."""
    chance = random.Random(seed)
    kinds = ["fetch"] * 5 + ["say"] * 5 + ["say with fetch"] * 2
    kinds += ["produce", "produce", "wrong", "close", "renew"]

    def drawn() -> tuple[str, int, list[float]]:
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


def lock_ms(seed: int) -> int:
    return LOCK_MS if seed % 4 else SHORT_LOCK_MS


def begin(bootstrap: str, seed: int) -> Run:
    name = f"share-{seed}"
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
    members = [ShareMember(bootstrap, name, name) for _ in range(MEMBERS)]
    for member in members:
        member.join()
    # The state of the partition is being read: nothing is acquired before.
    for member in members:
        member.fetch(wait_ms=500)
    return Run(members, client, name)


def end(run: Run) -> None:
    for member in run.members:
        member.leave()
        member.close()
    run.client.sock.close()


def act(run: Run, kind: str, number: int, numbers: Sequence[float]) -> object:
    """Do a step, and return what the broker answered."""
    member, owned = run.members[number], run.owned[number]
    match kind:
        case "produce":
            sizes = [1 + int(n * n * 40) for n in numbers[: 1 + int(numbers[5] * 4)]]
            produce(run.client, run.topic, *sizes)
            return sizes
        case "fetch":
            return _noted(owned, _fetch(member, numbers, []))
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
        return _noted(owned, _fetch(member, numbers, said))
    code = member.acknowledge(*said, renews=kind == "renew")
    if kind != "renew":
        owned -= {n for first, last, _ in said for n in range(first, last + 1)}
    return code


def _fetch(
    member: ShareMember, numbers: Sequence[float], said: list[tuple[int, int, list[int]]]
) -> Fetched:
    is_first = member.epoch == 0
    return member.fetch(
        records=1 + int(numbers[0] ** 2 * 60),
        batch_size=1 + int(numbers[1] * 50),
        is_exact=numbers[2] < 0.3,
        wait_ms=_WAIT_MS,
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


def compare(theirs: str, ours: str, seed: int) -> str | None:
    """The first difference, with everything that was done before."""
    runs = [begin(theirs, seed), begin(ours, seed)]
    done: list[str] = []
    since = time.monotonic()
    for step in steps(seed):
        with ThreadPoolExecutor(2) as side_by_side:
            answers = list(side_by_side.map(act, runs, *([part] * 2 for part in step)))
        done.append(f"{step[0]} by {step[1]}: {answers[0]}")
        if step[0] == "wait":
            since = time.monotonic()
        elif time.monotonic() - since > lock_ms(seed) * 0.8 / 1000:
            # On a machine that is too busy, locks end in the middle, at other moments.
            return TOO_SLOW
        if _is_their_bug(step[0], answers[0]):
            # From here on the epochs of the sessions differ.
            break
        if answers[0] != answers[1]:
            return f"seed {seed}\n" + "\n".join(done) + f"\nhere: {answers[1]}"
    for run in runs:
        end(run)
    return None


def _is_their_bug(kind: str, answer: object) -> bool:
    """Kafka fails where nothing is in flight any more; we say that the records are not acquired."""
    return kind == "wrong" and answer is KafkaCode.UNKNOWN_SERVER_ERROR


def differences(theirs: str, ours: str, seeds: Sequence[int]) -> tuple[list[str], int]:
    """What differs, and how many sequences were compared to their end."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda seed: compare(theirs, ours, seed), seeds))
    different = [one for one in found if one is not None and one != TOO_SLOW]
    return different, len([one for one in found if one != TOO_SLOW])


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
        found, compared = differences(kafka.bootstrap, node.bootstrap, seeds)
    print("\n\n".join(found))
    print(f"{compared} of {len(seeds)} sequences compared, {len(found)} with a difference")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
