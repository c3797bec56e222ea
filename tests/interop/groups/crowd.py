"""A crowd of members in many processes, and who owned what when.

The ledger is written from the members' own callbacks: an interval per member and
partition, from being told that it is theirs to being told that it is not. A killed member
owns nothing from the kill on. Two intervals of one partition must never overlap.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from tests.interop.groups.coordinators_view import described
from tests.support.java_program import java_command
from tests.support.waiting import wait_until

_JAVA = Path(__file__).parents[2] / "support" / "java" / "GroupMembers.java"
_LOG_BYTES_SHOWN = 4_000


@dataclass
class Interval:
    member: str
    begin_ns: int
    end_ns: int | None = None


@dataclass
class Ledger:
    # By partition, as `topic-number`.
    intervals: dict[str, list[Interval]] = field(default_factory=lambda: defaultdict(list))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, *, member: str, event: str, partitions: list[str], at_ns: int) -> None:
        with self._lock:
            for partition in partitions:
                if event == "assign":
                    self.intervals[partition].append(Interval(member, at_ns))
                else:
                    self._end(partition, member, at_ns)

    def _end(self, partition: str, member: str, at_ns: int) -> None:
        for interval in self.intervals[partition]:
            if interval.member == member and interval.end_ns is None:
                interval.end_ns = at_ns

    def gone(self, member: str, at_ns: int) -> None:
        with self._lock:
            for partition in self.intervals:
                self._end(partition, member, at_ns)

    def last_change_ns(self) -> int:
        """When a member last got a partition."""
        with self._lock:
            return max(each.begin_ns for found in self.intervals.values() for each in found)

    def owners(self) -> dict[str, list[str]]:
        with self._lock:
            return {
                partition: [each.member for each in found if each.end_ns is None]
                for partition, found in self.intervals.items()
            }

    def overlaps(self) -> list[str]:
        problems = []
        with self._lock:
            for partition, found in self.intervals.items():
                ordered = sorted(found, key=lambda interval: interval.begin_ns)
                for before, after in pairwise(ordered):
                    end = before.end_ns
                    if before.member != after.member and (end is None or end > after.begin_ns):
                        late = "still" if end is None else f"{(end - after.begin_ns) / 1e6:.1f} ms"
                        problems.append(
                            f"partition {partition}: {after.member} had it before "
                            f"{before.member} gave it up ({late})"
                        )
        return problems


class Process:
    """Some members of one kind."""

    def __init__(self, kind: str, bootstrap: str, group: str, topic: str, ledger: Ledger) -> None:
        self.members: list[str] = []
        self._ledger = ledger
        self._ready = threading.Event()
        arguments = [kind, bootstrap, group, topic]
        if kind.startswith("java"):
            command = [*java_command(_JAVA), *arguments]
        else:
            command = [sys.executable, "-m", "tests.interop.groups.members", *arguments]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready"):
                self._ready.set()
            elif line.endswith("\n"):
                self._ledger.note(**json.loads(line))

    @property
    def log_text(self) -> str:
        """The end of what the clients logged so far."""
        descriptor = self._log.fileno()
        # Not by seeking: the process writes at the same position.
        position = max(os.fstat(descriptor).st_size - _LOG_BYTES_SHOWN, 0)
        return os.pread(descriptor, _LOG_BYTES_SHOWN, position).decode(errors="replace")

    def wait_until_ready(self) -> None:
        assert self._ready.wait(60), "the members' process did not start"

    def add(self, name: str) -> None:
        self.members.append(name)
        self._tell(f"add {name}")

    def subscribe(self, name: str, *topics: str) -> None:
        self._tell(" ".join(("subscribe", name, *topics)))

    def leave(self, name: str) -> None:
        self.members.remove(name)
        self._tell(f"leave {name}")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9: nobody says goodbye."""
        at_ns = time.monotonic_ns()
        self._process.kill()
        self._finish()
        for name in self.members:
            self._ledger.gone(name, at_ns)
        self.members.clear()

    def stop(self) -> None:
        self._tell("stop")
        self._process.wait(60)
        self._finish()
        self.members.clear()

    def _finish(self) -> None:
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()


class Crowd:
    """`with Crowd(...) as crowd:` members come and go; at the end all are stopped."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.ledger = Ledger()
        self.processes: list[Process] = []
        self._where = (bootstrap, group, topic)
        self._partitions = partitions
        self._count = 0

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in list(self.processes):
            process.kill()

    def start(self, kind: str, members: int) -> Process:
        process = Process(kind, *self._where, self.ledger)
        self.processes.append(process)
        for _ in range(members):
            self.add(process)
        return process

    def add(self, process: Process) -> None:
        self._count += 1
        process.add(f"m{self._count}")

    def kill(self, process: Process) -> None:
        self.processes.remove(process)
        process.kill()

    @property
    def member_count(self) -> int:
        return sum(len(process.members) for process in self.processes)

    def wait_until_shared(self, seconds_max: float = 60, partitions: int | None = None) -> None:
        """Every partition has one owner, and every member one partition if there are enough."""
        count = partitions or self._partitions
        alive = {name for process in self.processes for name in process.members}

        def is_shared() -> bool:
            owners = self.ledger.owners()
            owned = [names for names in owners.values() if len(names) == 1]
            busy = {names[0] for names in owned}
            return len(owned) == count and busy <= alive and len(busy) == min(count, len(alive))

        try:
            wait_until(is_shared, "every partition has its owner", seconds_max=seconds_max)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._situation()}") from None

    def wait_until_owned(self, readers: dict[str, set[str]], partitions: int) -> None:
        """All partitions of these topics have one owner, among the readers of the topic."""

        def is_owned() -> bool:
            owned = dict.fromkeys(readers, 0)
            for partition, names in self.ledger.owners().items():
                topic = partition.rpartition("-")[0]
                if len(names) > 1 or not set(names) <= readers.get(topic, set()):
                    return False
                if names:
                    owned[topic] += 1
            return all(count == partitions for count in owned.values())

        try:
            wait_until(is_owned, "the new subscriptions count", seconds_max=60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._situation()}") from None

    def _situation(self) -> str:
        owners = dict(sorted(self.ledger.owners().items()))
        logs = (f"{process.members}: {process.log_text}" for process in self.processes)
        bootstrap, group, _ = self._where
        return "\n".join((str(owners), described(bootstrap, group), *logs))
