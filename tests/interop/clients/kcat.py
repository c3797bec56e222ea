"""kcat: librdkafka's command line, one process per call."""

import json
import re
import subprocess
from collections.abc import Sequence
from itertools import groupby

from tests.interop.clients.base import REQUEST_BYTES_MAX, WAIT_SECONDS, Client, Message, Refused
from tests.interop.clients.confluent import ConfluentKafka
from tests.support.tools import require

# Bytes that no test record contains.
_KEY_END = "\x01"
_RECORD_END = "\x02"


class Kcat(Client):
    name = "kcat"

    def produce(self, topic: str, messages: Sequence[Message], *, codec: str = "none") -> list[int]:
        if any(message.timestamp_ms is not None for message in messages):
            # kcat cannot set a timestamp; what is tested then is its reading.
            return ConfluentKafka(self.bootstrap).produce(topic, messages, codec=codec)
        first = self._end_offset(topic)
        for headers, group in groupby(messages, key=lambda message: message.headers):
            self._produce_group(topic, headers, list(group), codec)
        return list(range(first, self._end_offset(topic)))

    def consume(self, topic: str, *, count: int, offset: int | None = None) -> list[Message]:
        start = "beginning" if offset is None else str(offset)
        # The lengths come first, so keys and values may hold any byte.
        output = self._run(
            ["-C", "-t", topic, "-p", "0", "-o", start, "-c", str(count), "-u", "-q"]
            + ["-X", f"fetch.message.max.bytes={REQUEST_BYTES_MAX}"]
            + ["-f", "%o %T %K %S %h\n%k%s"],
        )
        return _parse(output)

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        return self._query(topic, str(timestamp_ms))

    def metadata(self) -> dict[str, int]:
        """Topic names with their partition counts, as `kcat -L` lists them."""
        listing = json.loads(self._run(["-L", "-J"]))
        return {topic["topic"]: len(topic["partitions"]) for topic in listing["topics"]}

    def _produce_group(
        self,
        topic: str,
        headers: tuple[tuple[str, bytes | None], ...],
        messages: list[Message],
        codec: str,
    ) -> None:
        lines = b"".join(
            (message.key or b"") + _KEY_END.encode() + (message.value or b"") + _RECORD_END.encode()
            for message in messages
        )
        options = [
            part
            for name, value in headers
            for part in ("-H", name if value is None else f"{name}={value.decode()}")
        ]
        self._run(
            ["-P", "-t", topic, "-p", "0", "-Z", "-K", _KEY_END, "-D", _RECORD_END, "-z", codec]
            + ["-X", "acks=all", "-X", f"message.max.bytes={REQUEST_BYTES_MAX}", *options],
            stdin=lines,
        )

    def _end_offset(self, topic: str) -> int:
        end = self._query(topic, "-1")
        assert end is not None
        return end

    def _query(self, topic: str, timestamp: str) -> int | None:
        output = self._run(["-Q", "-t", f"{topic}:0:{timestamp}"]).decode()
        found = re.search(r"offset (-?\d+)", output)
        assert found is not None, output
        return int(found[1]) if int(found[1]) >= 0 else None

    def _run(self, arguments: list[str], *, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            [require("kcat"), "-b", self.bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise Refused(done.stderr.decode())
        return done.stdout


def _parse(output: bytes) -> list[Message]:
    messages = []
    position = 0
    while position < len(output):
        line_end = output.index(b"\n", position)
        offset, timestamp, key_length, value_length, headers = (
            output[position:line_end].decode().split(" ", 4)
        )
        key_start = line_end + 1
        value_start = key_start + max(0, int(key_length))
        position = value_start + max(0, int(value_length))
        messages.append(
            Message(
                value=None if int(value_length) < 0 else output[value_start:position],
                key=None if int(key_length) < 0 else output[key_start:value_start],
                headers=tuple(_header(text) for text in headers.split(",") if text),
                timestamp_ms=int(timestamp),
                offset=int(offset),
            )
        )
    return messages


def _header(text: str) -> tuple[str, bytes | None]:
    name, _, value = text.partition("=")
    return name, None if value == "NULL" else value.encode()
