import pytest

from millstream.broker.coordination.member_quota import (
    MEMBERS_MAX,
    METADATA_BYTES_MAX,
    MemberQuota,
)
from millstream.coordinators.classic.group import ClassicGroup, ClassicMember
from millstream.errors import KafkaCode, KafkaError


def group_of(*sizes: int, host: str = "/10.0.0.1") -> ClassicGroup:
    members = {
        str(number): ClassicMember(str(number), None, "c", host, 1, 1, (("range", bytes(size)),))
        for number, size in enumerate(sizes)
    }
    return ClassicGroup("g", members=members)


def is_admitted(
    quota: MemberQuota, size: int, *groups: ClassicGroup, host: str = "/10.0.0.1", now_ms: int = 0
) -> bool:
    try:
        quota.admit(host, size, groups, now_ms=now_ms)
    except KafkaError as error:
        return error.code is not KafkaCode.GROUP_MAX_SIZE_REACHED
    return True


def test_members_of_one_address_share_a_number_of_bytes() -> None:
    quota = MemberQuota()
    present = group_of(METADATA_BYTES_MAX // 2)
    assert is_admitted(quota, METADATA_BYTES_MAX // 3, present)
    assert not is_admitted(quota, METADATA_BYTES_MAX // 3, present)
    assert is_admitted(quota, METADATA_BYTES_MAX // 3, present, host="/10.0.0.2")


def test_joins_count_until_the_members_are_counted_again() -> None:
    quota = MemberQuota()
    assert is_admitted(quota, METADATA_BYTES_MAX - 1)
    assert not is_admitted(quota, 2)
    # None of them became a member.
    assert is_admitted(quota, 2, now_ms=1_000)


@pytest.mark.parametrize("count", [MEMBERS_MAX - 1, MEMBERS_MAX])
def test_an_address_has_a_number_of_members(count: int) -> None:
    present = group_of(*[0] * count)
    assert is_admitted(MemberQuota(), 0, present) is (count < MEMBERS_MAX)
