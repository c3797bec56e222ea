"""A service that fails too often in a window: one alert for each such window, rewritten under
the same key while the window is open.

It is written with every batch that brings lines of the service and finds the window above the
limits. If the share of errors falls again, the alert stays as it was written last.
"""

from dataclasses import dataclass

from millstream.pipeline.window_totals import SERVICE, WindowKey, WindowTotals


@dataclass(frozen=True, slots=True)
class ErrorBurst:
    service: str
    # The start of the window.
    since_us: int
    text: str


def find_burst(
    key: WindowKey, totals: WindowTotals, *, error_share: float, error_count_min: int
) -> ErrorBurst | None:
    """The alert of a window with a larger share of errors, if there are enough of them."""
    start_us, output, name = key
    count, errors = totals.count, totals.errors
    if output != SERVICE or errors < error_count_min or errors <= count * error_share:
        return None
    return ErrorBurst(name, start_us, f"{errors} of {count} requests failed")
