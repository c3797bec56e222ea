"""What a task adds up from its events.

Covers pipeline/partials.py, pipeline/window_totals.py.
"""

import pyarrow as pa

from millstream.pipeline import partials
from millstream.pipeline.partials import SCHEMAS, VISITORS, VISITS, WINDOWS
from millstream.pipeline.window_totals import WindowKey, WindowTotals
from tests.pipeline.events import RULES, SECOND_US, Event, batch_of, gathered

MINUTE_US = 60 * SECOND_US


def windows(events: list[Event]) -> dict[WindowKey, WindowTotals]:
    """By way of the table, as they travel."""
    found: dict[WindowKey, WindowTotals] = {}
    table = gathered(events).tables()[WINDOWS]
    assert table.schema == SCHEMAS[WINDOWS]
    partials.add_windows(found, table)
    return found


def test_an_event_counts_in_every_group_that_it_belongs_to() -> None:
    found = windows(
        [
            Event(5, host="db", service="cart", duration_ms=3.0, status=500, size_bytes=7),
            Event(6, host="db", level="error"),
            Event(MINUTE_US, path="/x", visitor=9),
            Event(7, host="db", problem="late"),
        ]
    )
    counts = {key: (total.count, total.errors) for key, total in found.items()}
    assert counts == {
        (0, "input", "all"): (2, 2),
        (0, "host", "db"): (2, 2),
        (0, "service", "cart"): (1, 1),
        (MINUTE_US, "input", "all"): (1, 0),
        (MINUTE_US, "site", "all"): (1, 0),
    }
    cart = found[0, "service", "cart"]
    assert (cart.size_bytes, cart.duration_max, len(cart.durations)) == (7, 3.0, 1)
    assert found[MINUTE_US, "input", "all"].duration_max is None


def test_sizes_that_no_double_holds_are_added_up_exactly() -> None:
    sizes = [2**53 + 1, 2**53 + 3, -5, 1]
    [total] = windows([Event(0, size_bytes=size) for size in sizes]).values()
    assert total.size_bytes == sum(sizes)


def test_a_gauge_is_that_of_a_host() -> None:
    found = windows(
        [
            Event(0, host="db", gauges=(0.5, None)),
            Event(1, host="db", gauges=(0.25, None)),
            Event(2, gauges=(9.0, 9.0)),
            Event(3, host="web", gauges=(None, -1.0)),
        ]
    )
    db = found[0, "host", "db"].gauges
    assert [(each.count, each.total, each.largest) for each in db] == [
        (2, 0.75, 0.5),
        (0, 0.0, 0.0),
    ]
    assert found[0, "host", "web"].gauges[1].largest == -1.0
    assert found[0, "input", "all"].gauges == []


def test_views_of_a_visitor_are_one_part_until_a_silence_of_the_gap() -> None:
    gap_us = RULES.gap_us
    times = [gap_us + 1, 0, gap_us - 1, 2 * gap_us + 1]
    tables = gathered([Event(at, path="/", visitor=7) for at in times]).tables()
    assert tables[VISITS].to_pylist() == [
        {"visitor": 7, "start_us": 0, "end_us": gap_us + 1, "views": 3, "errors": 0, "reached": 0},
        {
            "visitor": 7,
            "start_us": 2 * gap_us + 1,
            "end_us": 2 * gap_us + 1,
            "views": 1,
            "errors": 0,
            "reached": 0,
        },
    ]
    assert tables[VISITORS].to_pylist() == [
        {"window_us": 0, "visitor": 7},
        {"window_us": MINUTE_US, "visitor": 7},
    ]


def test_of_the_first_step_only_the_first_view_is_kept() -> None:
    pages = ["/x", "/a", "/a", "/b1", "/a", "/b2"]
    events = [Event(number, path=page, visitor=1) for number, page in enumerate(pages)]
    steps = gathered(events).tables()[partials.STEPS].to_pylist()
    assert [(step["offset"], step["step"]) for step in steps] == [(1, 1), (3, 2), (5, 2)]


def test_a_view_without_a_visitor_is_a_view_of_the_site() -> None:
    tables = gathered([Event(0, path="/x"), Event(0, path="/x", visitor=1)]).tables()
    assert tables[partials.PAGES].to_pylist() == [{"window_us": 0, "path": "/x", "count": 2}]
    assert tables[VISITS].num_rows == tables[VISITORS].num_rows == 1


def test_times_far_apart_and_before_1970_have_their_windows() -> None:
    found = windows([Event(-1, host="a"), Event(10**15, host="b"), Event(-1, host="b")])
    assert {key: total.count for key, total in found.items() if key[1] == "host"} == {
        (-MINUTE_US, "host", "a"): 1,
        (-MINUTE_US, "host", "b"): 1,
        (10**15 - 10**15 % MINUTE_US, "host", "b"): 1,
    }


def test_no_events_are_empty_tables() -> None:
    gathering = gathered([])
    gathering.add(batch_of([Event(0, problem="ahead")]))
    assert gathering.newest_us is None
    tables = gathering.tables()
    assert {name: table.num_rows for name, table in tables.items()} == dict.fromkeys(SCHEMAS, 0)
    found = partials.from_bytes([(WINDOWS, partials.to_bytes(tables[WINDOWS]))])
    assert {name: table.schema for name, table in found.items()} == SCHEMAS
    assert isinstance(found[VISITS], pa.Table)
