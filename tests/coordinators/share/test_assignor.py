from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinators.share.assignor import SharingMember, assign_simple
from tests.coordinators.steps import steps

TOPICS = [UUID(int=number) for number in (1, 2, 3)]


def members_of(*topics: UUID, count: int) -> list[SharingMember]:
    return [SharingMember(f"m{number}", frozenset(topics)) for number in range(count)]


def test_few_members_have_several_partitions_each() -> None:
    found = assign_simple(members_of(TOPICS[0], count=2), {TOPICS[0]: range(4)})
    assert sorted(found["m0"][TOPICS[0]] + found["m1"][TOPICS[0]]) == [0, 1, 2, 3]


def test_many_members_share_a_partition() -> None:
    found = assign_simple(members_of(TOPICS[0], count=6), {TOPICS[0]: range(3)})
    assert all(len(one[TOPICS[0]]) == 1 for one in found.values())
    counts = [sum(n in one[TOPICS[0]] for one in found.values()) for n in range(3)]
    assert counts == [2, 2, 2]


def test_a_new_member_moves_as_little_as_possible() -> None:
    partitions = {TOPICS[0]: range(6)}
    before = assign_simple(members_of(TOPICS[0], count=2), partitions)
    members = [
        SharingMember(one.member_id, one.topic_ids, before.get(one.member_id, {}))
        for one in members_of(TOPICS[0], count=3)
    ]
    after = assign_simple(members, partitions)
    for name in before:
        assert set(after[name][TOPICS[0]]) <= set(before[name][TOPICS[0]])


@given(
    st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=12),
    st.lists(st.integers(1, 7), min_size=3, max_size=3),
)
def test_every_partition_has_a_member_and_every_member_a_fair_share(
    subscriptions: list[set[UUID]], counts: list[int]
) -> None:
    partitions = {topic: range(count) for topic, count in zip(TOPICS, counts, strict=True)}
    previous: dict[str, dict[UUID, tuple[int, ...]]] = {}
    # Members come one after the other; each keeps what it had.
    for size in range(1, len(subscriptions) + 1):
        members = [
            SharingMember(f"m{n}", frozenset(topics), previous.get(f"m{n}", {}))
            for n, topics in enumerate(subscriptions[:size])
        ]
        previous = assign_simple(members, partitions)
        read = set().union(*subscriptions[:size])
        for topic in read:
            held = [n for one in previous.values() for n in one.get(topic, ())]
            assert set(held) == set(partitions[topic])
        for number, topics in enumerate(subscriptions[:size]):
            assert previous[f"m{number}"].keys() <= topics
            assert previous[f"m{number}"], "a member without a partition"


def test_members_do_not_look_at_all_partitions_one_after_the_other() -> None:
    def work(count: int) -> int:
        members = members_of(*TOPICS, count=count)
        return steps(lambda: assign_simple(members, dict.fromkeys(TOPICS, range(500))))

    assert work(200) < 2 * work(50)
