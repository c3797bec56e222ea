"""`millstream quota` on a running node."""

import json

import pytest

from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream

pytestmark = pytest.mark.slow


def test_quotas_are_set_listed_and_deleted() -> None:
    with Broker() as broker:

        def quota(*arguments: str) -> Ran:
            return run_millstream("quota", *arguments, "-b", broker.bootstrap)

        ran = quota("set", "--user", "ann", "--client-id", "<default>", "producer_byte_rate=1e6")
        assert (ran.exit_code, ran.errors) == (
            0,
            "set 1 quota of user ann, client-id <default>\n",
        )
        assert quota("set", "--ip", "10.0.0.1", "connection_creation_rate=5").exit_code == 0
        assert json.loads(quota("list", "--json").output) == [
            {
                "user": "",
                "client_id": "",
                "ip": "10.0.0.1",
                "quota": "connection_creation_rate",
                "value": 5.0,
            },
            {
                "user": "ann",
                "client_id": "<default>",
                "ip": "",
                "quota": "producer_byte_rate",
                "value": 1e6,
            },
        ]
        assert "1e+06" in quota("list").output
        assert quota("delete", "--ip", "10.0.0.1", "connection_creation_rate").exit_code == 0
        assert "10.0.0.1" not in quota("list").output
        assert quota("set", "producer_byte_rate=1").exit_code == 2
        assert quota("set", "--user", "a", "producer_byte_rate").exit_code == 2
        wrong = quota("set", "--user", "a", "byte_rate=1")
        assert wrong.exit_code == 1
        assert "producer_byte_rate" in wrong.errors
