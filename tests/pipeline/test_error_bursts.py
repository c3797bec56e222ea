import pytest

from millstream.pipeline.error_bursts import ErrorBurst, find_burst
from millstream.pipeline.window_totals import WindowTotals


def find(output: str, errors: int, count: int) -> ErrorBurst | None:
    totals = WindowTotals(count=count, errors=errors)
    return find_burst((60, output, "cart"), totals, error_share=0.1, error_count_min=5)


@pytest.mark.parametrize(
    ("errors", "count", "is_burst"),
    [(4, 4, False), (5, 5, True), (5, 49, True), (5, 50, False), (6, 50, True)],
)
def test_a_burst_has_enough_errors_and_a_larger_share(
    errors: int, count: int, is_burst: bool
) -> None:
    expected = ErrorBurst("cart", 60, f"{errors} of {count} requests failed")
    assert find("service", errors, count) == (expected if is_burst else None)


@pytest.mark.parametrize("output", ["input", "host", "site"])
def test_only_services_have_bursts(output: str) -> None:
    assert find(output, 50, 50) is None
