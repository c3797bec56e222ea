"""The table in docs/testing.md of what Apache Kafka and Millstream answer differently.

    python -m tests.interop.differences

starts both, sends both every malformed batch, and writes the table. The tests compare it.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.interop.malformed import CODECS, cases

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"
BEGIN, END = "<!-- differences: begin -->\n", "<!-- differences: end -->\n"


def table(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The cases with different codes; those that differ only in their codec in one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name in theirs:
        if theirs[name] != ours[name]:
            codec, what = _parts(name)
            rows.setdefault((what, theirs[name], ours[name]), []).append(codec)
    lines = ["| batch | codec | Apache Kafka 4.3 | Millstream |", "|---|---|---|---|"]
    for (what, their_code, our_code), codecs in rows.items():
        every = len(codecs) == len(CODECS)
        shown = "every" if every else ", ".join(each for each in codecs if each)
        lines.append(f"| {what} | {shown} | {_shown(their_code)} | {_shown(our_code)} |")
    return "\n".join(lines) + "\n"


def _parts(name: str) -> tuple[str, str]:
    codec, _, what = name.partition(" ")
    known = {each.name.lower() for each in CODECS}
    return (codec, what.removeprefix("records: ")) if codec in known else ("", name)


def _shown(code: str) -> str:
    return "stored" if code == "NONE" else code


def in_page() -> str:
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def main() -> None:
    from tests.interop.test_malformed import codes_of
    from tests.support.apache_kafka import ApacheKafka
    from tests.support.broker import Broker

    wanted = dict(cases())
    with tempfile.TemporaryDirectory() as folder, ApacheKafka(Path(folder) / "data") as kafka:
        theirs = codes_of(kafka.bootstrap, "plain", wanted)
    with Broker() as broker:
        ours = codes_of(broker.bootstrap, "plain", wanted)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(theirs, ours)}\n{END}{after}")


if __name__ == "__main__":
    main()
