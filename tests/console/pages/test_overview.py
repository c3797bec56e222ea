"""Covers console/pages/overview.py, console/pages/nodes.py."""

from tests.support.console_node import Browser, ConsoleNode
from tests.support.waiting import wait_until


def test_the_overview_has_counts_and_no_problem(web: Browser, topic: str) -> None:
    view = web.api("/overview")
    assert view["topic_count"] >= 1
    assert len(view["nodes"]) == 1
    assert [each for each in view["problems"] if each["level"] == "error"] == []
    assert topic in [each["name"] for each in view["busiest"]] or view["topic_count"] > 8


def test_the_history_grows_with_every_sample(console_node: ConsoleNode, web: Browser) -> None:
    def has_a_rate() -> bool:
        """Whether the latest sample has one: two samples in the same moment give none."""
        console_node.sample()
        chart = web.api("/history?series=cluster.records_in")
        return len(chart["times"]) >= 2 and chart["series"]["cluster.records_in"][-1] is not None

    wait_until(has_a_rate, "a rate of records")
    before = len(web.api("/history?series=nothing")["times"])
    console_node.sample()
    chart = web.api("/history?series=nothing")
    assert len(chart["times"]) > before
    assert chart["series"]["nothing"][-1] is None


def test_nodes_have_disks(web: Browser) -> None:
    view = web.api("/nodes")
    [row] = view["rows"]
    assert row["is_controller"]
    assert 0 < row["disk_usable_bytes"] <= row["disk_total_bytes"]
    assert view["dead"] == []


def test_clients_have_names_and_software(web: Browser) -> None:
    names = {row["client_id"] for row in web.api("/clients")["rows"]}
    assert any(name.startswith("millstream-console/") for name in names)
