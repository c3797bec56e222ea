"""Consumer groups: the list, one group with its lag, and moving it to other offsets."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from millstream.client.group_reset import Move
from millstream.client.start_position import parse_start
from millstream.console import changes
from millstream.console.asking import AskFailed
from millstream.console.console import BadInput, Console, NotFound
from millstream.console.groups import (
    Group,
    Position,
    committed,
    describe_group,
    plan_reset,
    positions,
)
from millstream.console.page import Action, Done, Page, Parameter, Values
from millstream.console.problems import is_abandoned
from millstream.errors import KafkaCode
from millstream.model import TopicPartition

_PAGE_ROWS: Final = 100
_SORTS: Final = ("name", "lag", "state")


@dataclass(frozen=True, slots=True)
class GroupRow:
    group_id: str
    state: str
    kind: str
    topics: list[str]
    partition_count: int
    # None if it was not read: there are very many groups.
    lag: int | None
    # Without members, and with records to read.
    is_abandoned: bool


@dataclass(frozen=True, slots=True)
class GroupList:
    rows: list[GroupRow]
    count: int
    page: int
    page_count: int
    query: str
    sort: str


async def groups(console: Console, values: Values) -> GroupList:
    facts = await console.facts()
    query, sort = values.text("q"), values.choice("sort", _SORTS)
    rows = [
        GroupRow(
            group.group_id,
            group.state,
            group.kind,
            sorted({where.topic for where in group.committed}),
            len(group.committed),
            None if group.is_unread else facts.group_lag(group),
            is_abandoned(facts, group),
        )
        for group in facts.groups.values()
        if query.lower() in group.group_id.lower()
    ]
    rows.sort(
        key=lambda row: (
            -(row.lag or 0) if sort == "lag" else 0,
            row.state if sort == "state" else "",
            row.group_id,
        )
    )
    page_count = max(-(-len(rows) // _PAGE_ROWS), 1)
    page = min(values.number("page", 1, low=1), page_count)
    shown = rows[(page - 1) * _PAGE_ROWS : page * _PAGE_ROWS]
    return GroupList(shown, len(rows), page, page_count, query, sort)


@dataclass(frozen=True, slots=True)
class OneGroup:
    group: Group
    positions: list[Position]
    lag: int
    # Of the oldest unread record; None if it is not known.
    lag_ms: int | None


async def group(console: Console, values: Values) -> OneGroup:
    found = await _describe(console, values.text("group"))
    facts = await console.facts()
    rows = await positions(console.client, facts, found, now_ms=console.clock.now_ms)
    return OneGroup(
        found,
        rows,
        sum(row.lag or 0 for row in rows),
        max((row.lag_ms for row in rows if row.lag_ms is not None), default=None),
    )


async def _describe(console: Console, group_id: str) -> Group:
    try:
        return await describe_group(console.client, await console.facts(), group_id)
    except AskFailed as failed:
        if failed.code == KafkaCode.GROUP_ID_NOT_FOUND:
            raise NotFound(f"There is no group {group_id}.") from failed
        raise


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """Before and after, for each partition: nothing is changed yet."""

    group: Group
    to: str
    topic: str
    moves: list[Move]
    # Offsets can be changed only while nobody reads.
    is_possible: bool
    topics: list[str]


async def reset_plan(console: Console, values: Values) -> ResetPlan:
    found = await _describe(console, values.text("group"))
    to, topic = values.text("to"), values.text("only")
    moves = await _moves(console, found.group_id, to, topic) if to else []
    facts = await console.facts()
    names = sorted(name for name, one in facts.topics.items() if not one.is_internal)
    return ResetPlan(found, to, topic, moves, not found.members, names)


async def _moves(console: Console, group_id: str, to: str, topic: str) -> list[Move]:
    try:
        start = parse_start(to, now=datetime.fromtimestamp(console.clock.now_ms() / 1000, UTC))
    except ValueError as wrong:
        raise BadInput(f"To: {wrong}.") from None
    commits = await committed(console.client, group_id)
    if topic:
        count = len((await console.topic(topic)).partitions)
        places = [TopicPartition(topic, index) for index in range(count)]
    else:
        places = sorted(commits)
    return await plan_reset(console.client, await console.facts(), places, commits, start)


async def reset(console: Console, values: Values) -> Done:
    group_id = values.text("group")
    moves = await _moves(console, group_id, values.text("to"), values.text("only"))
    if not moves:
        raise BadInput("The group has no committed offsets. Choose a topic.")
    await changes.commit_offsets(
        console.client, group_id, [(move.where, move.after) for move in moves]
    )
    await console.sampler.sample()
    text = f"Group {group_id} was moved on {len(moves)} partitions."
    return Done(text, f"/groups/{quote(group_id, safe='')}")


async def delete(console: Console, values: Values) -> Done:
    group_id = values.text("group")
    if values.text("confirm") != group_id:
        raise BadInput(f"Type the group's name, {group_id}, to confirm that it should be deleted.")
    await changes.delete_group(console.client, group_id)
    await console.sampler.sample()
    return Done(f"Group {group_id} was deleted.", "/groups")


_TO: Final = Parameter("to", "beginning, end, an offset, -N, or @TIME such as @-1h")
_ONLY: Final = Parameter("only", "one topic; default: all that the group has committed")
PAGES = (
    Page(
        "/groups",
        "groups.html",
        groups,
        "Consumer groups with their lag",
        (
            Parameter("q", "a part of the name"),
            Parameter("sort", "name, lag or state"),
            Parameter("page", "of 100 rows each"),
        ),
    ),
    # Before the page of a group, whose name may contain anything.
    Page(
        "/groups/{group:path}/reset",
        "group_reset.html",
        reset_plan,
        "What a reset of a group would change",
        (_TO, _ONLY),
    ),
    Page("/groups/{group:path}", "group.html", group, "Members, assignment and lag of a group"),
)
ACTIONS = (
    Action("/groups/{group:path}/reset", reset, "Move a group to other offsets", (_TO, _ONLY)),
    Action(
        "/groups/{group:path}/delete", delete, "Delete a group", (Parameter("confirm", "its name"),)
    ),
)
