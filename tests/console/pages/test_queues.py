"""Covers console/pages/queues.py, console/share_queues.py."""

from millstream.errors import KafkaCode
from tests.support.console_node import Browser, ConsoleNode
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    REJECT,
    RELEASE,
    ShareMember,
    create_topic,
    set_group_options,
)
from tests.support.waiting import wait_until

LONG_MS = 20_000


def test_a_share_group_is_shown_as_a_queue(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    group = f"queue-{topic}"
    with RawClient(console_node.bootstrap) as client:
        set_group_options(
            client,
            group,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name="dlq.missing",
        )
    with ShareMember(console_node.bootstrap, group, topic) as member:
        member.join()
        first, last, _ = member.fetch(wait_ms=LONG_MS).ranges[0]
        assert last - first >= 2
        said = [(first, first, [RELEASE]), (first + 1, first + 1, [REJECT])]
        assert member.acknowledge(*said) is KafkaCode.NONE

        def has_complained() -> bool:
            return bool(web.api(f"/groups/{group}/queue")["dead_letter_problem"])

        wait_until(has_complained, "the node reports the missing topic")
        view = web.api(f"/groups/{group}/queue")
        assert (view["is_queue"], view["group"]["state"]) == (True, "Stable")
        assert (view["retried"], view["in_flight"]) == (1, last - first - 1)
        assert view["oldest_age_ms"] >= 0
        [row] = [one for one in view["partitions"] if one["where"]["partition"] == 0]
        assert (row["start"], row["ranges"][0]["state"]) == (first, "retried")
        assert view["dead_letter_topic"] == "dlq.missing"
        page = web.get(f"/groups/{group}/queue").text
        assert member.member_id in page
        assert "dlq.missing does not exist" in page
        assert f"/groups/{group}/queue" in web.get(f"/groups/{group}").text


def test_dead_letters_are_counted(console_node: ConsoleNode, web: Browser, topic: str) -> None:
    group, letters = f"counted-{topic}", f"dlq.{topic}"
    with RawClient(console_node.bootstrap) as client:
        create_topic(client, letters, errors_deadletterqueue_group_enable="true")
        set_group_options(
            client,
            group,
            share_auto_offset_reset="earliest",
            errors_deadletterqueue_topic_name=letters,
        )
    with ShareMember(console_node.bootstrap, group, topic) as member:
        member.join()
        first, last, _ = member.fetch(wait_ms=LONG_MS).ranges[0]
        assert member.acknowledge((first, last, [REJECT])) is KafkaCode.NONE
        count = last - first + 1

        def has_counted() -> bool:
            return web.api(f"/groups/{group}/queue")["dead_letters"] == count

        wait_until(has_counted, "the letters are written")
    sample = f'millstream_share_dead_letters_total{{consumergroup="{group}"}} {count}\n'
    assert sample in web.get("/metrics").text


def test_other_groups_are_no_queues(console_node: ConsoleNode, web: Browser, topic: str) -> None:
    from tests.console.pages.test_groups import commit

    commit(console_node, f"plain-{topic}", topic, {0: 1})
    assert web.api(f"/groups/plain-{topic}/queue")["is_queue"] is False
    assert "Only share groups are queues" in web.get(f"/groups/plain-{topic}/queue").text
    assert web.get("/groups/no-such-group/queue").status == 404
