"""Whole nodes whose disks change a byte: nobody takes it over, and it heals from a peer.

Covers replication, broker/upkeep/scrubbing.py.
"""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from millstream.broker.upkeep import scrubbing
from millstream.errors import KafkaCode
from millstream.records.batch import split_batches
from tests.replication.nodes import Cluster, cluster_of, fetch, produce, until
from tests.storage.logs import read_all

pytestmark = pytest.mark.slow

_FIRST_SEGMENT = "t-0/00000000000000000000.log"
_ALWAYS = {
    "millstream.scrub.interval.ms": "50",
    "millstream.scrub.bytes.per.second": "100000000",
}
_ON_COMPLAINT = {"millstream.scrub.bytes.per.second": "0"}


def first_segment(folder: Path, node_id: int) -> Path:
    return folder / f"node-{node_id}" / _FIRST_SEGMENT


def flip_a_byte(path: Path, position: int = 75) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        changed = file.read(1)[0] ^ 0x40
        file.seek(position)
        file.write(bytes([changed]))


async def fill(cluster: Cluster) -> None:
    """Several closed segments, on every replica."""
    await cluster.create(segment_bytes="10000")
    leader = await cluster.led()
    for _ in range(10):
        assert (await produce(leader, 2, value=bytes(2000)))[0] is KafkaCode.NONE
    everybody = list(cluster.nodes)
    await until(
        lambda: all(len(cluster.replica(n).log.segments) > 3 for n in everybody), "segments"
    )
    await until(
        lambda: all(cluster.replica(n).high_watermark == 20 for n in everybody), "all is committed"
    )


async def healed(cluster: Cluster, node_id: int) -> None:
    """In sync again, with the leader's bytes."""
    await cluster.in_sync(*cluster.nodes)
    leader = await cluster.led()

    def is_equal() -> bool:
        own, other = cluster.replica(node_id), cluster.replica(leader.node_id)
        if own.high_watermark != other.high_watermark:
            return False
        return read_all(own.log) == read_all(other.log) and is_sound(read_all(own.log))

    await until(is_equal, f"node {node_id} has the leader's bytes")


def is_sound(data: bytes) -> bool:
    return all(batch.crc_is_valid() for batch in split_batches(memoryview(data)))


def test_a_follower_finds_a_changed_byte_and_fetches_its_replica_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ALWAYS) as cluster:
            await fill(cluster)
            leader = await cluster.led()
            other = next(n for n in cluster.nodes if n != leader.node_id)
            before = cluster.replica(other)
            epoch = before.leader_epoch
            flip_a_byte(first_segment(tmp_path, other))
            await until(lambda: cluster.replica(other) is not before, "it is given up")
            await healed(cluster, other)
            # What it fetched before its fall counts no more, though the leader stayed.
            assert await cluster.led() is leader
            assert cluster.replica(other).leader_epoch == epoch + 1
            assert await produce(leader, 1) == (KafkaCode.NONE, 20)

    asyncio.run(scenario())


def test_a_leader_that_finds_a_changed_byte_leads_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ALWAYS) as cluster:
            await fill(cluster)
            first = await cluster.led()
            flip_a_byte(first_segment(tmp_path, first.node_id))
            second = await cluster.led(besides=first.node_id)
            await healed(cluster, first.node_id)
            assert await cluster.led() is second
            assert is_sound(bytes((await fetch(second)).records))
            assert await produce(second, 1) == (KafkaCode.NONE, 20)

    asyncio.run(scenario())


def test_a_follower_that_cannot_use_what_its_leader_sends_ends_the_leadership(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ON_COMPLAINT) as cluster:
            await fill(cluster)
            first = await cluster.led()
            newcomer = next(n for n in cluster.nodes if n != first.node_id)
            await cluster.nodes.pop(newcomer).stop()
            for path in (tmp_path / f"node-{newcomer}" / "t-0").iterdir():
                path.unlink()
            flip_a_byte(first_segment(tmp_path, first.node_id))
            await cluster.start(newcomer)
            await cluster.led(besides=first.node_id)
            await healed(cluster, newcomer)
            await healed(cluster, first.node_id)

    asyncio.run(scenario())


def test_a_header_that_cannot_be_read_is_noticed_by_who_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ON_COMPLAINT) as cluster:
            await fill(cluster)
            first = await cluster.led()
            # The magic byte of the first batch.
            flip_a_byte(first_segment(tmp_path, first.node_id), 16)
            assert (await fetch(first)).error_code == KafkaCode.KAFKA_STORAGE_ERROR
            second = await cluster.led(besides=first.node_id)
            assert (await fetch(second)).error_code == KafkaCode.NONE
            await healed(cluster, first.node_id)

    asyncio.run(scenario())


def test_a_disk_that_cannot_read_is_damaged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ALWAYS) as cluster:
            await fill(cluster)
            leader = await cluster.led()
            other = next(n for n in cluster.nodes if n != leader.node_id)
            before = cluster.replica(other)
            bad, read = before.log.segments[1].file, os.pread

            def pread(descriptor: int, length: int, position: int) -> bytes:
                if descriptor == bad.descriptor:
                    raise OSError(errno.EIO, "Input/output error")
                return read(descriptor, length, position)

            monkeypatch.setattr(os, "pread", pread)
            await until(lambda: cluster.replica(other) is not before, "it is given up")
            await healed(cluster, other)

    asyncio.run(scenario())


def test_a_replica_too_damaged_to_be_opened_is_fetched_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            await cluster.create()
            leader = await cluster.led()
            for _ in range(3):
                await produce(leader, 2)
            other = next(n for n in cluster.nodes if n != leader.node_id)
            await cluster.kill(other)
            # Intact batches follow: a process that only died does not leave this behind.
            flip_a_byte(first_segment(tmp_path, other))
            node = await cluster.start(other)
            await until(lambda: not node.store.offline, "it is opened anew")
            await healed(cluster, other)

    asyncio.run(scenario())


def test_what_could_not_be_healed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(scrubbing, "_REST_SECONDS", 0.0)

    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ON_COMPLAINT) as cluster:
            await fill(cluster)
            leader = await cluster.led()
            others = [n for n in cluster.nodes if n != leader.node_id]
            for node_id in others:
                await cluster.kill(node_id)
            await cluster.in_sync(leader.node_id)
            flip_a_byte(first_segment(tmp_path, leader.node_id), 16)
            assert (await fetch(leader)).error_code == KafkaCode.KAFKA_STORAGE_ERROR
            clustering = leader.member
            await until(lambda: bool(clustering._healing._logged), "a person is told")
            for node_id in others:
                await cluster.start(node_id)
            await cluster.led(besides=leader.node_id)
            await healed(cluster, leader.node_id)

    asyncio.run(scenario())


def test_the_only_replica_is_kept_however_damaged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=_ALWAYS) as cluster:
            await cluster.create(replicas=1, segment_bytes="10000")
            leader = await cluster.led()
            for _ in range(10):
                assert (await produce(leader, 2, value=bytes(2000)))[0] is KafkaCode.NONE
            path = first_segment(tmp_path, leader.node_id)
            flip_a_byte(path)
            before, partition = path.read_bytes(), cluster.replica(leader.node_id)
            clustering = leader.member
            told = clustering._healing._logged
            await until(lambda: bool(told), "a person is told")
            assert cluster.replica(leader.node_id) is partition
            assert path.read_bytes() == before
            # And what is not damaged is served.
            assert (await fetch(leader, 18)).error_code == KafkaCode.NONE
            assert await produce(leader, 1) == (KafkaCode.NONE, 20)

    asyncio.run(scenario())
