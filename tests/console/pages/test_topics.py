from confluent_kafka.admin import AdminClient, ConfigResource

from tests.support.console_node import Browser, ConsoleNode


def admin_of(node: ConsoleNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})


def test_the_list_has_sizes_and_can_be_filtered(web: Browser, topic: str) -> None:
    view = web.api(f"/topics?q={topic}")
    assert view["cleanup_policies"] == {topic: "delete"}
    [row] = view["rows"]
    assert (row["name"], row["partition_count"], row["records"]) == (topic, 2, 10)
    assert row["size_bytes"] > 0
    assert web.api("/topics?q=no-such-name")["rows"] == []


def test_a_topic_can_be_created_changed_and_deleted(
    console_node: ConsoleNode, web: Browser
) -> None:
    answer = web.submit("/topics", name="made-here", partitions="3", **{"retention.ms": "3600000"})
    assert answer.status == 303
    admin = admin_of(console_node)
    assert len(admin.list_topics(timeout=20).topics["made-here"].partitions) == 3
    assert "was created" in web.get(answer.headers["location"]).text

    web.submit("/topics/made-here/config", name="retention.ms", value="7200000")
    [found] = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "made-here")]
    ).values()
    assert found.result(20)["retention.ms"].value == "7200000"
    rows = web.api("/topics/made-here/config")["rows"]
    [row] = [row for row in rows if row["name"] == "retention.ms"]
    assert (row["value"], row["default"], row["origin"]) == (
        "7200000",
        "168 (log.retention.hours)",
        "this topic",
    )
    assert row["documentation"]
    web.submit("/topics/made-here/config", name="retention.ms", reset="1")
    [found] = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "made-here")]
    ).values()
    assert found.result(20)["retention.ms"].value == "604800000"

    assert web.call("/topics/made-here/partitions", count=4).status == 200
    assert web.api("/topics/made-here/partitions")["topic"]["partition_count"] == 4

    assert web.submit("/topics/made-here/delete", confirm="something else").status == 400
    assert web.submit("/topics/made-here/delete", confirm="made-here").status == 303
    assert "made-here" not in admin.list_topics(timeout=20).topics


def test_what_the_cluster_refuses_is_shown_in_its_words(web: Browser, topic: str) -> None:
    answer = web.submit("/topics", name=topic)
    assert answer.status == 422
    assert "TOPIC_ALREADY_EXISTS" in answer.text
    assert web.submit("/topics", name="a b").status == 400
    wrong = web.call(f"/topics/{topic}/config", name="retention.ms", value="soon")
    assert (wrong.status, "INVALID_CONFIG" in wrong.json["error"]) == (422, True)
