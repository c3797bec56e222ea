"""Only a node that knows the cluster's secret is taken for one."""

import asyncio
from pathlib import Path

import pytest

from millstream.client.aio import Connection, NoAnswer
from millstream.client.node_proof import node_proof, prove
from millstream.errors import KafkaCode
from millstream.wire.apis.prove_node import ProveNodeRequest
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.replication.nodes import cluster_of
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def commit_marker() -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    return WriteTxnMarkersRequest(markers=[marker])


def test_a_client_commits_nobodys_transaction() -> None:
    with Broker(topics={"t": 1}) as broker, RawClient(broker.bootstrap) as client:
        [marker] = client.ask(commit_marker(), 1).markers
        [partition] = marker.topics[0].partitions
        assert partition.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_standalone_node_believes_nobody() -> None:
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        challenge = client.ask(ProveNodeRequest(node_id=1, proof=b""), 0).challenge
        proof = node_proof(b"", bytes(challenge), 1)
        answer = client.ask(ProveNodeRequest(node_id=1, proof=proof), 0)
        assert answer.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_secret_is_needed_and_a_challenge_is_good_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster_of(tmp_path) as cluster:
            node = cluster.nodes[1]
            secret = node.membership.secret
            assert len(secret) == 32
            assert {each.membership.secret for each in cluster.nodes.values()} == {secret}

            async def opened() -> Connection:
                return await Connection.open(
                    "127.0.0.1", node.port, client_id="test", timeout_seconds=10
                )

            connection = await opened()
            with pytest.raises(NoAnswer, match="does not know this one"):
                await prove(connection, 2, b"guessed", timeout_seconds=10)
            connection.close()
            connection = await opened()
            first = ProveNodeRequest(node_id=2, proof=b"")
            challenge = bytes((await connection.ask(first, 0, timeout_seconds=10)).challenge)
            proof = node_proof(secret, challenge, 2)
            for node_id, expected in (
                # For another node, and then too late: the challenge is used up.
                (3, KafkaCode.CLUSTER_AUTHORIZATION_FAILED),
                (2, KafkaCode.CLUSTER_AUTHORIZATION_FAILED),
            ):
                request = ProveNodeRequest(node_id=node_id, proof=proof)
                answer = await connection.ask(request, 0, timeout_seconds=10)
                assert answer.error_code == expected
            await prove(connection, 2, secret, timeout_seconds=10)
            connection.close()

    asyncio.run(scenario())
