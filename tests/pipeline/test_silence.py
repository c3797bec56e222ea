"""The watch over one host, with its state and its timers as plain values."""

from millstream.pipeline.silence import HostWatch
from tests.pipeline.processors import FakeHandle


class Host:
    """A host under watch; time is what the test says."""

    def __init__(self) -> None:
        self.handle = FakeHandle()
        self._watch = HostWatch(self.handle, silent_after_ms=20_000)  # type: ignore[arg-type]

    def speaks(self, now_ms: int) -> list[str]:
        return [alert.kind for alert in self._watch.hear(now_ms)]

    def passes(self, now_ms: int) -> list[str]:
        expired = self.handle.take_expired(now_ms)
        return [alert.kind for _ in expired for alert in self._watch.wake()]


def test_a_host_that_goes_on_speaking_gives_no_alert() -> None:
    host = Host()
    for now_ms in range(0, 100_000, 10_000):
        assert host.speaks(now_ms) == []
        assert host.passes(now_ms + 9_999) == []
    assert len(host.handle.timers) == 1


def test_silence_is_told_once_and_so_is_its_end() -> None:
    host = Host()
    host.speaks(1_000)
    assert host.passes(20_999) == []
    assert host.passes(21_000) == ["silent"]
    assert host.passes(90_000) == []
    assert host.speaks(95_000) == ["back"]
    assert host.speaks(96_000) == []
    assert host.passes(116_000) == ["silent"]
