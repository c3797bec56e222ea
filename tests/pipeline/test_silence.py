"""The watch over hosts, with time as the test says."""

from millstream.pipeline.silence import FORGOTTEN_AFTER_MS, HeardHost, watch_hosts


class Hosts:
    def __init__(self) -> None:
        self._hosts: dict[str, HeardHost] = {}

    def after(self, now_ms: int, *heard: str) -> list[tuple[str, str]]:
        alerts = watch_hosts(self._hosts, heard, now_ms, silent_after_ms=20_000)
        return [(alert.kind, alert.host) for alert in alerts]

    def names(self) -> set[str]:
        return set(self._hosts)


def test_a_host_that_goes_on_speaking_gives_no_alert() -> None:
    hosts = Hosts()
    for now_ms in range(0, 100_000, 10_000):
        assert hosts.after(now_ms, "db") == []
        assert hosts.after(now_ms + 9_999) == []


def test_silence_is_told_once_and_so_is_its_end() -> None:
    hosts = Hosts()
    hosts.after(1_000, "db", "web")
    assert hosts.after(20_999, "web") == []
    assert hosts.after(21_000) == [("silent", "db")]
    assert hosts.after(40_000, "web") == []
    assert hosts.after(45_000, "db") == [("back", "db")]
    assert hosts.after(46_000, "db") == []
    assert hosts.after(66_000) == [("silent", "db"), ("silent", "web")]


def test_a_host_that_was_silent_for_a_day_is_forgotten() -> None:
    hosts = Hosts()
    hosts.after(0, "container-1", "db")
    assert hosts.after(20_000, "db") == [("silent", "container-1")]
    assert hosts.after(FORGOTTEN_AFTER_MS - 1, "db") == []
    assert hosts.names() == {"container-1", "db"}
    assert hosts.after(FORGOTTEN_AFTER_MS, "db") == []
    assert hosts.names() == {"db"}
    # A new host of the same name.
    assert hosts.after(FORGOTTEN_AFTER_MS + 1, "container-1") == []
