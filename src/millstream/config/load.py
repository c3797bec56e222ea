"""From a file, `--set` and flags to a checked `BrokerConfig`.

Precedence: flags, then `--set`, then the file, then defaults. If two names mean the same (hours
and milliseconds), the one that is set with higher precedence counts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from millstream.config.broker_config import BrokerConfig, Setting, check_allowed
from millstream.config.files import read_option_file
from millstream.config.listeners import inter_broker_listener, parse_listeners
from millstream.config.option import Status, parse_value
from millstream.config.secrets import is_reference, resolved
from millstream.config.table import BROKER_OPTIONS, find_broker_option, is_per_listener
from millstream.config.topic_config import topic_overrides_problem
from millstream.errors import ConfigError

FLAG_ORIGIN: Final = "flag"
SET_ORIGIN: Final = "--set"


def load_config(
    *,
    file: Path | None = None,
    sets: Sequence[str] = (),
    flags: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Everything the user set, checked. Raises ConfigError with one line for the user.

    `sets` are texts `name=value`; `flags` are option names with the values that flags
    of the command line stand for.
    """
    texts: dict[str, str] = {}
    origins: dict[str, str] = {}
    layers = [
        (str(file), read_option_file(file) if file is not None else {}),
        (SET_ORIGIN, _parse_sets(sets)),
        (FLAG_ORIGIN, dict(flags or {})),
    ]
    for origin, layer in layers:
        for name in layer:
            for replaced in _replaced_by(name):
                texts.pop(replaced, None)
        texts.update(layer)
        origins.update(dict.fromkeys(layer, origin))
    config = _checked_settings(texts, origins)
    _check_together(config)
    return config


def refuse_secrets(sets: Sequence[str]) -> None:
    """For `name=value` of a command line. Raises ConfigError."""
    for name, text in _parse_sets(sets).items():
        option = find_broker_option(name)
        if option is not None and option.is_sensitive and not is_reference(text):
            raise ConfigError(
                f"{SET_ORIGIN} {name}: everybody on this machine can read a command line. Write "
                f"it into the config file, or use {name}='${{file:PATH}}' or '${{env:NAME}}'"
            )


def _parse_sets(sets: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text}: write it as name=value")
        settings[name.strip()] = value
    return settings


def _replaced_by(name: str) -> list[str]:
    """Names that take precedence over `name` and would hide it."""
    replaced = []
    for option in BROKER_OPTIONS.values():
        if name in option.synonyms:
            earlier = option.synonyms[: option.synonyms.index(name)]
            replaced += [option.name, *earlier]
    return replaced


def _checked_settings(texts: Mapping[str, str], origins: Mapping[str, str]) -> BrokerConfig:
    settings = {}
    notes = []
    for name, text in texts.items():
        origin = origins[name]
        try:
            option = find_broker_option(name)
            if option is None:
                notes.append(f"{name}: {Status.NO_EFFECT.value}")
                continue
            value = parse_value(option, resolved(name, text))
            check_allowed(option, value)
        except ConfigError as problem:
            raise ConfigError(f"{origin}: {problem}") from None
        has_place = option.name == name or is_per_listener(option.name)
        if option.status is Status.NO_EFFECT or not has_place:
            notes.append(f"{name}: {Status.NO_EFFECT.value}")
        # -1 is Kafka's way to say that the older name is not set.
        if has_place and (name, value) != ("broker.id", -1):
            settings[name] = Setting(value, origin)
    return BrokerConfig(settings, notes=tuple(notes))


def _check_together(config: BrokerConfig) -> None:
    """Raises ConfigError for options that do not fit together."""
    inter_broker_listener(config, parse_listeners(config))
    both_ids_set = config.is_set("node.id") and config.is_set("broker.id")
    if both_ids_set and config.int("node.id") != config.int("broker.id"):
        raise ConfigError("node.id and broker.id are the same thing, and differ")
    if config.int("node.id") < 0:
        raise ConfigError("node.id: must not be negative")
    if "broker" not in config.list("process.roles"):
        raise ConfigError("process.roles: a node is always a broker; add that role")
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        if len(config.list(name)) > 1:
            raise ConfigError(
                f"{name}: names several nodes; set zookeeper.connect to run several nodes"
            )
    directories = config.list("log.dirs")
    if not directories or not all(directories):
        raise ConfigError("log.dirs: names no directory")
    problem = topic_overrides_problem(config, {})
    if problem is not None:
        raise ConfigError(problem)
