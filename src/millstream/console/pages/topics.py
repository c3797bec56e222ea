"""Topics: the list, one topic's partitions, consumers and options, and changes to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from millstream.console import changes
from millstream.console.asking import AskFailed
from millstream.console.console import BadInput, Console
from millstream.console.facts import ClusterFacts, PartitionFacts, TopicFacts
from millstream.console.page import Action, Done, Page, Parameter, Values
from millstream.console.topic_configs import OptionRow, cleanup_policies, topic_options
from millstream.model import topic_name_problem

PAGE_ROWS: Final = 100
_PARTITIONS_MAX: Final = 10_000
_SORTS: Final = ("name", "records", "bytes", "in", "out", "lag", "partitions")
_PROBLEMS: Final = ("", "offline", "under-replicated")


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    records: int
    size_bytes: int
    records_in: float | None
    records_out: float | None
    # Of the group that is furthest behind; None if no group has committed anything here.
    slowest_group: str | None
    slowest_lag: int | None
    offline: int
    under_replicated: int


@dataclass(frozen=True, slots=True)
class TopicList:
    rows: list[TopicRow]
    # By topic, of those that may be read: delete, compact, or both.
    cleanup_policies: dict[str, str]
    # Before the rows of other pages were left out.
    count: int
    page: int
    page_count: int
    query: str
    sort: str
    problem: str
    shows_internal: bool


async def topics(console: Console, values: Values) -> TopicList:
    facts = await console.facts()
    query, sort = values.text("q"), values.choice("sort", _SORTS)
    problem = values.choice("problem", _PROBLEMS)
    shows_internal = values.has("internal")
    slowest = slowest_groups(facts)
    rows = [
        _row(console, topic, slowest.get(topic.name))
        for topic in facts.topics.values()
        if (shows_internal or not topic.is_internal) and query.lower() in topic.name.lower()
    ]
    if problem == "offline":
        rows = [row for row in rows if row.offline]
    elif problem:
        rows = [row for row in rows if row.under_replicated]
    rows.sort(key=_sort_key(sort))
    page_count = max(-(-len(rows) // PAGE_ROWS), 1)
    page = min(values.number("page", 1, low=1), page_count)
    shown = rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
    policies = await _policies(console, shown)
    return TopicList(
        shown, policies, len(rows), page, page_count, query, sort, problem, shows_internal
    )


async def _policies(console: Console, rows: list[TopicRow]) -> dict[str, str]:
    if not rows:
        return {}
    try:
        return await cleanup_policies(console.client, [row.name for row in rows])
    except AskFailed:
        # The list is worth more than this column.
        return {}


def _sort_key(sort: str) -> Callable[[TopicRow], tuple[float, str]]:
    fields: dict[str, Callable[[TopicRow], float]] = {
        "records": lambda row: -row.records,
        "bytes": lambda row: -row.size_bytes,
        "in": lambda row: -(row.records_in or 0.0),
        "out": lambda row: -(row.records_out or 0.0),
        "lag": lambda row: -(row.slowest_lag or 0),
        "partitions": lambda row: -row.partition_count,
        "name": lambda row: 0,
    }
    first = fields[sort]
    return lambda row: (first(row), row.name)


def _row(console: Console, topic: TopicFacts, slowest: tuple[str, int] | None) -> TopicRow:
    history = console.sampler.history
    return TopicRow(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        topic.replication_factor,
        topic.records,
        topic.size_bytes,
        history.latest(f"topic.{topic.name}.records_in"),
        history.latest(f"topic.{topic.name}.records_out"),
        None if slowest is None else slowest[0],
        None if slowest is None else slowest[1],
        sum(one.is_offline for one in topic.partitions),
        sum(one.is_under_replicated for one in topic.partitions),
    )


def slowest_groups(facts: ClusterFacts) -> dict[str, tuple[str, int]]:
    """For each topic that a group reads: the group with the largest lag."""
    lags: dict[tuple[str, str], int] = {}
    for group in facts.groups.values():
        for where, offset in group.committed.items():
            lag = facts.lag(where, offset)
            if lag is not None:
                key = (where.topic, group.group_id)
                lags[key] = lags.get(key, 0) + lag
    slowest: dict[str, tuple[str, int]] = {}
    for (topic, group_id), lag in sorted(lags.items()):
        if topic not in slowest or lag > slowest[topic][1]:
            slowest[topic] = (group_id, lag)
    return slowest


# -- one topic ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicHead:
    """What the frame around the tabs of a topic shows."""

    name: str
    is_internal: bool
    partition_count: int
    replication_factor: int
    records: int
    size_bytes: int
    records_in: float | None
    records_out: float | None


async def topic_head(console: Console, name: str) -> TopicHead:
    topic = await console.topic(name)
    history = console.sampler.history
    return TopicHead(
        topic.name,
        topic.is_internal,
        len(topic.partitions),
        topic.replication_factor,
        topic.records,
        topic.size_bytes,
        history.latest(f"topic.{name}.records_in"),
        history.latest(f"topic.{name}.records_out"),
    )


@dataclass(frozen=True, slots=True)
class Partitions:
    topic: TopicHead
    rows: list[PartitionFacts]
    page: int
    page_count: int


async def partitions(console: Console, values: Values) -> Partitions:
    name = values.text("topic")
    head = await topic_head(console, name)
    every = (await console.topic(name)).partitions
    page_count = max(-(-len(every) // PAGE_ROWS), 1)
    page = min(values.number("page", 1, low=1), page_count)
    return Partitions(head, every[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], page, page_count)


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    group_id: str
    state: str
    partition_count: int
    lag: int


@dataclass(frozen=True, slots=True)
class Consumers:
    topic: TopicHead
    rows: list[ConsumerRow]


async def consumers(console: Console, values: Values) -> Consumers:
    name = values.text("topic")
    head = await topic_head(console, name)
    facts = await console.facts()
    rows = []
    for group in facts.groups.values():
        own = {where: at for where, at in group.committed.items() if where.topic == name}
        if own:
            lag = sum(facts.lag(where, at) or 0 for where, at in own.items())
            rows.append(ConsumerRow(group.group_id, group.state, len(own), lag))
    return Consumers(head, sorted(rows, key=lambda row: (-row.lag, row.group_id)))


@dataclass(frozen=True, slots=True)
class Options:
    topic: TopicHead
    rows: list[OptionRow]
    query: str


async def options(console: Console, values: Values) -> Options:
    name, query = values.text("topic"), values.text("q")
    head = await topic_head(console, name)
    rows = await topic_options(console.client, name)
    lowered = query.lower()
    shown = [row for row in rows if lowered in row.name or lowered in row.documentation.lower()]
    return Options(head, shown, query)


@dataclass(frozen=True, slots=True)
class NewTopic:
    node_count: int


async def new_topic(console: Console, values: Values) -> NewTopic:
    return NewTopic(len((await console.facts()).nodes))


# -- changes --------------------------------------------------------------------------


async def create(console: Console, values: Values) -> Done:
    name = values.text("name")
    problem = topic_name_problem(name)
    if problem is not None:
        raise BadInput(f"{problem[0].upper()}{problem[1:]}.")
    configs = {
        option: values.text(option)
        for option in ("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas")
        if values.has(option)
    }
    await changes.create_topic(
        console.client,
        (await console.facts()).controller_id,
        name,
        partitions=values.number("partitions", 1, low=1, high=_PARTITIONS_MAX),
        replication_factor=values.number("replication_factor", -1, low=-1, high=100),
        configs=configs,
    )
    await console.sampler.sample()
    return Done(f"Topic {name} was created.", f"/topics/{quote(name)}/partitions")


async def delete(console: Console, values: Values) -> Done:
    name = values.text("topic")
    if values.text("confirm") != name:
        raise BadInput(f"Type the topic's name, {name}, to confirm that it should be deleted.")
    await changes.delete_topic(console.client, (await console.facts()).controller_id, name)
    await console.sampler.sample()
    return Done(f"Topic {name} was deleted.", "/topics")


async def add_partitions(console: Console, values: Values) -> Done:
    name = values.text("topic")
    count = values.number("count", 0, low=1, high=_PARTITIONS_MAX)
    controller_id = (await console.facts()).controller_id
    await changes.add_partitions(console.client, controller_id, name, count)
    await console.sampler.sample()
    url = f"/topics/{quote(name)}/partitions"
    return Done(f"Topic {name} has {count} partitions.", url)


async def alter(console: Console, values: Values) -> Done:
    topic, name = values.text("topic"), values.text("name")
    # An empty value is one that some options take; removing it is another button.
    value = None if values.has("reset") else values.text("value")
    await changes.alter_topic_config(console.client, topic, name, value)
    text = f"{name} is back at its default." if value is None else f"{name} is {value!r} now."
    return Done(text, f"/topics/{quote(topic)}/config")


PAGES = (
    Page(
        "/topics",
        "topics.html",
        topics,
        "Topics with sizes, rates and the slowest group",
        (
            Parameter("q", "a part of the name"),
            Parameter("sort", " or ".join(_SORTS)),
            Parameter("problem", "offline or under-replicated"),
            Parameter("internal", "1 shows internal topics, too"),
            Parameter("page", "of 100 rows each"),
        ),
    ),
    Page("/new-topic", "new_topic.html", new_topic, "What a new topic needs"),
    Page(
        "/topics/{topic}/partitions",
        "topic_partitions.html",
        partitions,
        "Leaders, replicas, ISR and offsets of a topic's partitions",
        (Parameter("page", "of 100 rows each"),),
    ),
    Page(
        "/topics/{topic}/consumers", "topic_consumers.html", consumers, "Groups that read a topic"
    ),
    Page(
        "/topics/{topic}/config",
        "topic_config.html",
        options,
        "A topic's options with documentation, default and origin",
        (Parameter("q", "a part of the name or the documentation"),),
    ),
)
ACTIONS = (
    Action(
        "/topics",
        create,
        "Create a topic",
        (
            Parameter("name", ""),
            Parameter("partitions", "1 by default"),
            Parameter("replication_factor", "-1: the cluster's default"),
            Parameter("cleanup.policy", "and other options of topics"),
        ),
    ),
    Action("/topics/{topic}/delete", delete, "Delete a topic", (Parameter("confirm", "its name"),)),
    Action(
        "/topics/{topic}/partitions",
        add_partitions,
        "Add partitions to a topic",
        (Parameter("count", "how many it should have"),),
    ),
    Action(
        "/topics/{topic}/config",
        alter,
        "Set or reset one option of a topic",
        (
            Parameter("name", "of the option"),
            Parameter("value", ""),
            Parameter("reset", "1 removes the topic's own value"),
        ),
    ),
)
