"""What counts against quotas, and when: on a node whose groups are not loaded."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.broker.coordination import creation_quota, member_quota
from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.config import load_config
from millstream.coordinators.journal import ShardStatus
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.offset_commit import OffsetToCommit
from tests.support.open_node import OpenNode

CALLER = Caller("10.0.0.1", "/10.0.0.1")
_FEW = 3


def admit_group(groups: GroupCoordinators) -> None:
    groups.admit_group("g", CALLER.client)


def admit_metadata(groups: GroupCoordinators) -> None:
    row = OffsetToCommit(0, 1, -1, "m" * 4_096, KafkaCode.NONE)
    groups.admit_metadata("g", CALLER.client, [("t", [row])])


def admit_member(groups: GroupCoordinators) -> None:
    groups.admit_member("g", CALLER, 1, member_id="m")


def admit_assignments(groups: GroupCoordinators) -> None:
    groups.admit_assignments("g", CALLER, 1)


@pytest.mark.parametrize("admit", [admit_group, admit_metadata, admit_member, admit_assignments])
def test_requests_for_groups_that_are_being_loaded_do_not_count(
    admit: Callable[[GroupCoordinators], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members try again many times a second. None of them is new."""
    monkeypatch.setattr(creation_quota, "AT_ONCE_MAX", _FEW)
    monkeypatch.setattr(member_quota, "MEMBERS_MAX", _FEW)
    monkeypatch.setattr(member_quota, "METADATA_BYTES_MAX", _FEW)

    async def codes() -> set[KafkaCode]:
        flags = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = OpenNode(load_config(flags=flags), dev=True)
        await node.start()
        try:
            groups = node.coordinators
            await groups.ensure_topic()
            shard = groups.shard_for("g")
            shard.drop(ShardStatus.LOADING, "a test")
            found = {_code(admit, groups) for _ in range(3 * _FEW)}
            await shard.load()
            admit(groups)
            return found
        finally:
            await node.stop()

    assert asyncio.run(codes()) == {KafkaCode.COORDINATOR_LOAD_IN_PROGRESS}


def _code(admit: Callable[[GroupCoordinators], None], groups: GroupCoordinators) -> KafkaCode:
    try:
        admit(groups)
    except KafkaError as error:
        return error.code
    return KafkaCode.NONE
