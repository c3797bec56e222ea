"""The made-up site: the same for a seed, in order, with everything a pipeline should see."""

import json
import re
from collections import Counter
from itertools import islice, pairwise

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import FUNNEL, HOSTS, Site, TrafficLine

START_MS = 1_790_000_000_000


def lines(count: int, *, seed: int = 1) -> list[TrafficLine]:
    site = Site(seed=seed, start_ms=START_MS, lines_per_second=100)
    return list(islice(site.lines(), count))


def test_a_seed_makes_the_same_traffic_again_and_another_does_not() -> None:
    assert lines(2000) == lines(2000)
    assert lines(2000) != lines(2000, seed=2)


def test_lines_are_in_the_order_of_event_time() -> None:
    times = [line.time_ms for line in lines(5000)]
    assert times == sorted(times)
    assert times[0] >= START_MS


def test_every_host_and_every_kind_of_log_is_there() -> None:
    sources = {line.source for line in lines(20_000)}
    assert {f"{host}/health" for host in HOSTS} <= sources
    kinds = {source.partition("/")[2] for source in sources}
    assert kinds == {"access", "requests", "health", "syslog", "messages", "jobs"}


def test_visitors_walk_through_the_funnel_and_fewer_reach_each_step() -> None:
    reached: Counter[str] = Counter()
    for line in lines(20_000):
        if line.source.endswith("/access"):
            path = re.search(rb'"(?:GET|POST) (/[a-z]*)', line.data)
            assert path is not None
            reached[path[1].decode()] += 1
    counts = [reached[step] for step in FUNNEL]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0


def test_incidents_show_in_the_lines() -> None:
    errors: Counter[int] = Counter()
    health: dict[str, list[int]] = {host: [] for host in HOSTS}
    for line in lines(60_000):
        second = (line.time_ms - START_MS) // 1000
        if line.source.endswith("/requests"):
            errors[second // 15] += json.loads(line.data)["status"] == 500
        if line.source.endswith("/health"):
            health[line.source.partition("/")[0]].append(second)
    assert max(errors[3], errors[4]) > 5 * max(1, errors[1])
    longest = {host: max(b - a for a, b in pairwise(seen)) for host, seen in health.items()}
    assert sorted(longest.values())[-1] >= 30


def test_programs_talk_about_their_work_and_say_something_new_in_trouble() -> None:
    said = [line.data.decode() for line in lines(60_000) if line.source.endswith("/jobs")]
    kinds = Counter(re.sub(r"\d+", "#", each.partition(" ")[2]) for each in said)
    assert kinds["INFO job # finished in # ms"] > kinds["INFO reindexed # products in # ms"] > 0
    first = next(number for number, each in enumerate(said) if "gateway timed out" in each)
    assert first > len(said) // 20, "before the first incident"


def test_bad_lines_come_between_in_the_share_that_is_asked_for() -> None:
    good = lines(5000)
    mixed = list(with_bad_lines(good, seed=3, share=0.1))
    assert 350 < len(mixed) - len(good) < 650
    assert [line for line in mixed if line in good] == good
