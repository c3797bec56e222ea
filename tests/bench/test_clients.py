import pytest

from bench.clients import parse_java_consume, parse_java_produce

OUTPUT = """100 records sent, 500.0 records/sec (0.48 MB/sec), 3.0 ms avg latency, 9 ms max latency.
1000 records sent, 900.5 records/sec (0.86 MB/sec), 1.0 ms avg latency, 9.0 ms max latency
800 steady state records sent, 1200.25 records/sec (1.14 MB/sec), 0.9 ms avg latency
"""


def test_the_rate_is_that_of_the_last_summary() -> None:
    assert parse_java_produce(OUTPUT) == 1200.25


def test_output_without_a_summary_is_shown() -> None:
    with pytest.raises(AssertionError, match="no brokers"):
        parse_java_produce("no brokers")


def test_the_rate_of_a_consumer_leaves_out_the_time_of_joining() -> None:
    output = (
        "WARNING: something, else\n"
        "2026-01-31 12:00:00:000, 2026-01-31 12:00:04:000, 95.4, 23.8, 1000, 250.0, 3000, 1000,"
        " 95.4, 1000.5\n"
    )

    assert parse_java_consume(output) == 1000.5
