"""Profiles: client options under a name, in a file of the user.

`~/.config/millstream/config.toml` holds `current = "NAME"` and a table `[profiles.NAME]` of
client options by Kafka's names. MILLSTREAM_CONFIG names another file, MILLSTREAM_PROFILE another
profile.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.secret_options import is_secret


@dataclass(slots=True)
class Profiles:
    current: str | None = None
    options: dict[str, dict[str, str]] = field(default_factory=dict)


def profiles_file() -> Path:
    named = os.environ.get("MILLSTREAM_CONFIG")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "millstream" / "config.toml"


def load_profiles() -> Profiles:
    """Without a file, no profiles. Raises CommandFailed."""
    path = profiles_file()
    if not path.exists():
        return Profiles()
    # Imported late: most people have no profiles.
    import tomllib

    try:
        found = tomllib.loads(path.read_text())
    except (OSError, ValueError) as wrong:
        raise CommandFailed(f"{path}: {wrong}", exit_code=ExitCode.USAGE) from None
    tables = found.get("profiles", {})
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise CommandFailed(f"{path}: profiles must be tables", exit_code=ExitCode.USAGE)
    options = {
        name: {key: _text(value) for key, value in table.items()} for name, table in tables.items()
    }
    return Profiles(found.get("current"), options)


def save_profiles(profiles: Profiles) -> None:
    """For the user alone: options may be passwords."""
    path = profiles_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [] if profiles.current is None else [f"current = {_quoted(profiles.current)}", ""]
    for name, options in profiles.options.items():
        lines.append(f"[profiles.{_quoted(name)}]")
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in options.items()]
        lines.append("")
    unfinished = path.with_name(path.name + ".new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write("\n".join(lines))
    unfinished.replace(path)


def chosen_options() -> dict[str, str]:
    """Those of the profile in use; none without one. Raises CommandFailed."""
    profiles = load_profiles()
    name = os.environ.get("MILLSTREAM_PROFILE") or profiles.current
    return {} if name is None else profile_options(profiles, name)


def profile_options(profiles: Profiles, name: str) -> dict[str, str]:
    if name not in profiles.options:
        known = ", ".join(profiles.options) or "none"
        raise CommandFailed(
            f"there is no profile {name} in {profiles_file()}; there are: {known}. Create it with:"
            f" millstream profile set {name} bootstrap.servers=HOST:PORT",
            exit_code=ExitCode.USAGE,
        )
    return profiles.options[name]


def shown_value(key: str, value: str) -> str:
    return "(hidden)" if is_secret(key) or "token" in key else value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    import json

    # A JSON string is a TOML string, except for this one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
