"""Prints docs/configuration.md from the table: `python -m millstream.config.documentation`."""

from collections.abc import Iterable, Iterator
from typing import Final

from millstream.config.broker_config import ONLY_FOR_ALL_NODES
from millstream.config.option import INT_MAX, LONG_MAX, Option, Value, format_value
from millstream.config.table import SECTIONS

_HEAD: Final = """\
# Configuration

Generated from `src/millstream/config/options.txt`; a test keeps the two equal. To regenerate it:
`python -m millstream.config.documentation > docs/configuration.md`.

Names, types and defaults are Kafka's. Precedence: flags, then `--set name=value`, then the file
given with `--config`, then defaults. `--listen` sets `listeners`, and `--data-dir` sets `log.dirs`.
A file whose name ends in `.toml` is TOML; one that ends in `.properties` is Kafka's
`server.properties`:

```toml
num.partitions = 3
[log.retention]
hours = 24
```

The node knows every broker option of Kafka 3.x and 4.x. Each has one of three states:

- *works*: the option does what it says.
- *accepted, no effect*: setting it changes nothing. The node logs a line that says so, at its start
  or when a client sets the option on a topic, a group or a running node.
- *refused*: any value but the default stops the start, or fails the request that sets it.

A name that Kafka does not have is an error, except for the few that are Millstream's own.
`listener.name.<listener>.<option>`, with the listener's name in lower case, sets an `ssl.` or
`sasl.` option, `connections.max.reauth.ms` or `max.connection.creation.rate` for one listener, and
`listener.name.<listener>.<mechanism>.<option>` for one SASL mechanism of it. The same prefix before
other options, and the options of Kafka's plug-ins, are accepted without effect.

Intended differences from Kafka:

- `listeners` is loopback only. On other addresses, a listener without TLS needs
  `allow.insecure.listeners=true`; `millstream secure` creates what one with TLS needs.
- `log.dir` is the folder `data`, not a temporary one.
- `node.id` is 1 and `process.roles` is `broker`, so neither has to be set.
- `queued.max.request.bytes` is 256 MiB, so that large requests cannot use up all memory.
- `segment.bytes` and `log.segment.bytes` may be as small as 10,000 bytes (Kafka 4: 1 MiB).
- `eligible.leader.replicas.enable` is on, as in new clusters of Kafka 4.1.
- A node without `zookeeper.connect` creates internal topics with one replica, whatever is set.
- With one replica, acks=all waits for the disk. `--dev` turns that off.

The column *run time* says whether the option can be changed while the node runs. Those
that say *for all nodes* have one value for the whole cluster.
"""
_TABLE_HEAD: Final = """\
| Name | Type | Default | Allowed | What it does | Status | Run time |
|---|---|---|---|---|---|---|"""
_OVERRIDE_TABLE_HEAD: Final = """\
| Name | Type | Default | Allowed | What it does | Status | Falls back to |
|---|---|---|---|---|---|---|"""
_NOTES: Final = {
    "topic": "A topic's options can always be changed. One that is not set has the node's value.",
    "client-metrics": "Set these with IncrementalAlterConfigs on a resource of type CLIENT_METRICS"
    " under any name, or with `kafka-client-metrics.sh`. Without an option, there is none.",
    "group": "Set these with IncrementalAlterConfigs on a group, which need not exist yet.",
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
    if option.name in ONLY_FOR_ALL_NODES:
        return "for all nodes"
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
