import pytest

from bench.replay import ReplayFailed, parse

LINE = (
    '{"seconds": 1.5, "requests": 30, "errors": %d, "first_error": %d, "bytes_sent": 9,'
    ' "bytes_received": 8, "client_cpu_seconds": 0.1, "p50_us": 1.0, "p99_us": 2.0,'
    ' "p999_us": 3.0, "max_us": 4.0}'
)


def test_the_line_of_the_program_becomes_figures() -> None:
    found = parse(LINE % (0, 0))

    assert (found.seconds, found.requests, found.p99_us) == (1.5, 30, 2.0)


def test_answers_with_errors_are_no_measurement() -> None:
    with pytest.raises(ReplayFailed, match="2 answers with errors, the first with code 3"):
        parse(LINE % (2, 3))
