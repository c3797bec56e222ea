"""Covers console/pages/groups.py, console/groups.py, console/changes.py."""

from urllib.parse import quote

from confluent_kafka import Consumer, TopicPartition

from tests.support.console_node import Browser, ConsoleNode
from tests.support.share_member import ShareMember
from tests.support.streams_member import joined_member


def commit(node: ConsoleNode, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "log_level": 0})
    places = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    node.sample()


def test_a_group_has_its_lag_in_records_and_time(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    commit(console_node, f"g-{topic}", topic, {0: 1, 1: 5})
    [row] = web.api(f"/groups?q=g-{topic}")["rows"]
    assert (row["lag"], row["topics"], row["is_abandoned"]) == (4, [topic], False)
    view = web.api(f"/groups/g-{topic}")
    assert [(each["committed"], each["lag"]) for each in view["positions"]] == [(1, 4), (5, 0)]
    assert view["lag_ms"] >= 0
    [consumer] = web.api(f"/topics/{topic}/consumers")["rows"]
    assert (consumer["group_id"], consumer["lag"]) == (f"g-{topic}", 4)
    [listed] = web.api(f"/topics?q={topic}")["rows"]
    assert (listed["slowest_group"], listed["slowest_lag"]) == (f"g-{topic}", 4)


def test_a_reset_is_shown_first_and_then_done(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    group = f"reset-{topic}"
    commit(console_node, group, topic, {0: 1, 1: 5})
    plan = web.api(f"/groups/{group}/reset?to=-2")
    assert [(move["before"], move["after"]) for move in plan["moves"]] == [(1, 3), (5, 3)]
    assert web.api(f"/groups/{group}")["lag"] == 4
    assert web.submit(f"/groups/{group}/reset", to="-2").status == 303
    consumer = Consumer({"bootstrap.servers": console_node.bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=30)
    consumer.close()
    assert [each.offset for each in found] == [3, 3]
    assert web.get(f"/groups/{group}/reset?to=tomorrow").status == 400


def test_a_group_with_members_is_described_and_not_moved(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    group = f"alive-{topic}"
    consumer = Consumer(
        {
            "bootstrap.servers": console_node.bootstrap,
            "group.id": group,
            "client.id": "the-member",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    assert consumer.poll(60) is not None
    view = web.api(f"/groups/{group}")
    [member] = view["group"]["members"]
    assert member["client_id"] == "the-member"
    assert len(member["partitions"]) == 2
    assert web.api(f"/groups/{group}/reset?to=beginning")["is_possible"] is False
    assert web.submit(f"/groups/{group}/reset", to="beginning", only=topic).status == 422
    consumer.close()


def test_a_streams_group_is_shown_with_what_its_tasks_read(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    group = f"app-{topic}"
    with joined_member(console_node.bootstrap, group, topic) as member:
        view = web.api(f"/groups/{group}")
        assert (view["group"]["kind"], view["group"]["assignor"]) == ("streams", "sticky")
        [shown] = view["group"]["members"]
        assert shown["member_id"] == member.member_id
        assert {where["topic"] for where in shown["partitions"]} >= {topic}
        assert member.member_id in web.get(f"/groups/{group}").text


def test_a_group_with_any_name_is_shown_and_deleted(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    group = f"<b>a/b ?{topic}"
    commit(console_node, group, topic, {0: 0})
    path = f"/groups/{quote(group, safe='')}"
    text = web.get(path).text
    assert "&lt;b&gt;a/b" in text
    assert "<b>a" not in text
    assert web.submit(f"{path}/delete", confirm=group).status == 303
    assert web.get(path).status == 404


def test_a_share_group_has_its_members(console_node: ConsoleNode, web: Browser, topic: str) -> None:
    group = f"share-{topic}"
    with ShareMember(console_node.bootstrap, group, topic) as member:
        member.join()
        console_node.sample()
        view = web.api(f"/groups/{group}")["group"]
        assert (view["kind"], view["state"]) == ("share", "Stable")
        [shown] = view["members"]
        assert (shown["member_id"], len(shown["partitions"])) == (member.member_id, 2)
        [row] = web.api(f"/groups?q={group}")["rows"]
        assert row["kind"] == "share"
        member.leave()
