"""The first page: what is wrong, how much there is, how fast it moves."""

from dataclasses import dataclass

from millstream.console.allowed import require_describe_cluster
from millstream.console.console import Console
from millstream.console.facts import NodeFacts
from millstream.console.history import Chart
from millstream.console.page import Page, Parameter, Values
from millstream.console.problems import Problem, find_problems

_BUSIEST_SHOWN = 8
_SERIES_MAX = 20


@dataclass(frozen=True, slots=True)
class BusyTopic:
    name: str
    records_in: float
    records_out: float | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Overview:
    cluster_id: str
    nodes: list[NodeFacts]
    problems: list[Problem]
    topic_count: int
    partition_count: int
    record_count: int
    size_bytes: int
    group_count: int
    records_in: float | None
    records_out: float | None
    busiest: list[BusyTopic]
    sampled_at_ms: int


async def overview(console: Console, values: Values) -> Overview:
    facts = await console.facts()
    history = console.sampler.history
    topics = [topic for topic in facts.topics.values() if not topic.is_internal]
    busiest = [
        BusyTopic(
            topic.name,
            history.latest(f"topic.{topic.name}.records_in") or 0.0,
            history.latest(f"topic.{topic.name}.records_out"),
            topic.size_bytes,
        )
        for topic in topics
    ]
    busiest.sort(key=lambda topic: (-topic.records_in, -topic.size_bytes, topic.name))
    return Overview(
        facts.cluster_id,
        facts.nodes,
        find_problems(facts),
        len(topics),
        sum(len(topic.partitions) for topic in topics),
        sum(topic.records for topic in topics),
        sum(topic.size_bytes for topic in facts.topics.values()),
        len(facts.groups),
        history.latest("cluster.records_in"),
        history.latest("cluster.records_out"),
        busiest[:_BUSIEST_SHOWN],
        facts.taken_at_ms,
    )


async def history(console: Console, values: Values) -> Chart:
    names = [name for name in values.text("series").split(",") if name][:_SERIES_MAX]
    if console.user is not None and any(name.startswith("node.") for name in names):
        await require_describe_cluster(console)
    since = values.number("since_ms", 0)
    return console.sampler.history.chart(names, since=since / 1000)


PAGES = (
    Page(
        "/",
        "overview.html",
        overview,
        "Problems, nodes and rates of the cluster",
        is_of_sample=True,
    ),
    Page(
        "/history",
        "history.html",
        history,
        "Up to an hour of samples, for charts",
        (
            Parameter("series", "names, with commas between them, such as cluster.records_in"),
            Parameter("since_ms", "only samples after this time"),
        ),
    ),
)
