"""Values that stand elsewhere: `${env:NAME}`, `${file:PATH}` and `${file:PATH:KEY}`.

This is the syntax of Kafka's config providers, which need not be set up here. `${file:PATH}` is the
whole file without the line end; with a key, the file has options, and that one counts. So no secret
has to stand in a command line, which every user of the machine can read.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from millstream.config.files import read_option_file
from millstream.errors import ConfigError

_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}:]*)(?::([^}]+))?\}")


def resolved(name: str, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The value of option `name` with what it refers to. Raises ConfigError."""
    return _REFERENCE.sub(lambda found: _value(name, found, environment), text)


def is_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def _value(name: str, found: re.Match[str], environment: Mapping[str, str]) -> str:
    kind, where, key = found.groups()
    if kind == "env":
        # In Kafka's own form, ${env::NAME}, an empty path stands before the name.
        variable = key or where
        if variable not in environment:
            raise ConfigError(f"{name}: the environment has no {variable}")
        return environment[variable]
    if key is None:
        try:
            return Path(where).read_text().rstrip("\r\n")
        except OSError as problem:
            raise ConfigError(f"{name}: {where}: {problem.strerror}") from None
    options = read_option_file(Path(where))
    if key not in options:
        raise ConfigError(f"{name}: {where} has no option {key}")
    return options[key]
