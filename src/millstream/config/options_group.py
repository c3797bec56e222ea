"""Options of a single consumer group."""

from typing import Final

from millstream.config.option import Option
from millstream.config.words import INT, WORKS

TITLE: Final = "Single groups"

OPTIONS: Final = (
    Option(
        "consumer.session.timeout.ms",
        INT,
        45000,
        "A member of the group is gone after this much silence.",
        WORKS,
        minimum=1,
        synonyms=("group.consumer.session.timeout.ms",),
    ),
    Option(
        "consumer.heartbeat.interval.ms",
        INT,
        5000,
        "How often members of the group report.",
        WORKS,
        minimum=1,
        synonyms=("group.consumer.heartbeat.interval.ms",),
    ),
    Option(
        "consumer.assignment.interval.ms",
        INT,
        1000,
        "The least time between two assignments of the group.",
        minimum=0,
        synonyms=("group.consumer.assignment.interval.ms",),
    ),
)
