"""Writes docs/configuration.md from the table: `python -m millstream.config.documentation`."""

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.config.option import INT_MAX, LONG_MAX, Option, Value, format_value
from millstream.config.table import SECTIONS

_HEAD: Final = """\
# Configuration

Made from the tables in `src/millstream/config/`; a test keeps the two equal. To write it anew:
`python -m millstream.config.documentation > docs/configuration.md`.

Names, types and defaults are Kafka's. A value is looked for in this order: a flag of the command,
`--set name=value`, the file given with `--config`, the default. `--listen` stands for `listeners`,
`--data-dir` for `log.dirs`. A file is TOML if its name ends in `.toml`, and Kafka's own
`server.properties` if it ends in `.properties`:

```toml
num.partitions = 3
[log.retention]
hours = 24
```

Every broker option of Kafka 3.x and 4.x is known. One that *works* does what it says; one that is
*accepted* changes nothing here, and setting it prints one line at the start; one that is *refused*
stops the start, unless it is set to its default. A name that Kafka lacks too is an error.
`listener.name.<listener>.<option>` and the options of Kafka's plug-ins are accepted likewise.

What differs from Kafka on purpose:

- `listeners` is loopback only; write `PLAINTEXT://:9092` to listen on all interfaces.
- `log.dir` is the folder `data`, not one for temporary files.
- `node.id` is 1 and `process.roles` is `broker`; neither has to be set.
- `queued.max.request.bytes` is 256 MiB, so that large requests cannot take all memory.
- `segment.bytes` and `log.segment.bytes` may be as small as in Kafka 3 (14 bytes; Kafka 4: 1 MiB).
- A node without `zookeeper.connect` makes internal topics with one replica, whatever is set.
- acks=all on one replica waits for the disk; `--dev` turns that off.

The column *run time* says whether the option can be changed while the node runs.
"""
_TABLE_HEAD: Final = """\
| Name | Type | Default | Allowed | What it does | Status | Run time |
|---|---|---|---|---|---|---|"""
_OVERRIDE_TABLE_HEAD: Final = """\
| Name | Type | Default | Allowed | What it does | Status | Else from |
|---|---|---|---|---|---|---|"""
_NOTES: Final = {
    "topic": "Options of a topic can always be changed. Where one is not set, the node's is used.",
    "group": "Set with IncrementalAlterConfigs on a group, which need not exist yet.",
}
_LARGEST: Final = (INT_MAX, LONG_MAX)


def configuration_page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for number, section in enumerate(SECTIONS):
        if number:
            yield ""
        yield f"## {section.title}\n"
        if section.scope in _NOTES:
            yield f"{_NOTES[section.scope]}\n"
        yield _TABLE_HEAD if section.scope == "broker" else _OVERRIDE_TABLE_HEAD
        for option in section.options:
            yield _row(
                option, _run_time(option) if section.scope == "broker" else _synonyms(option)
            )


def _run_time(option: Option) -> str:
    return "yes" if option.is_dynamic else ""


def _synonyms(option: Option) -> str:
    return ", ".join(f"`{name}`" for name in option.synonyms)


def _row(option: Option, last: str) -> str:
    cells = [
        f"`{option.name}`",
        option.kind.name.lower(),
        _default(option.default),
        _allowed(option),
        option.doc,
        option.status_text,
        last,
    ]
    return "| " + " | ".join(cells) + " |"


def _default(value: Value) -> str:
    if value is None:
        return ""
    if value in _LARGEST:
        return "no limit"
    text = format_value(value)
    return f"`{text}`" if text else "empty"


def _allowed(option: Option) -> str:
    if option.choices:
        return ", ".join(_without_case_twins(option.choices))
    if option.minimum is None:
        return ""
    if option.maximum is None:
        return f"{option.minimum} or more"
    return f"{option.minimum} to {option.maximum}"


def _without_case_twins(choices: Iterable[str]) -> list[str]:
    return sorted({choice.lower(): choice for choice in sorted(choices)}.values())


if __name__ == "__main__":
    print(configuration_page(), end="")
