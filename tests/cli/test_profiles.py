"""Profiles: options under names.

Covers cli/profiles.py, cli/profile.py.
"""

import json
import stat
from pathlib import Path

import pytest

from millstream.cli.failure import CommandFailed
from millstream.cli.profiles import (
    Profiles,
    chosen_options,
    load_profiles,
    profiles_file,
    save_profiles,
)
from tests.support.command_line import Ran, run_millstream
from tests.support.ports import reserve_port


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "config.toml"
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(path))
    monkeypatch.delenv("MILLSTREAM_PROFILE", raising=False)
    return path


def test_without_a_file_there_are_none() -> None:
    assert load_profiles() == Profiles()
    assert chosen_options() == {}


def test_what_is_saved_is_loaded_and_only_the_owner_may_read_it(file: Path) -> None:
    saved = Profiles("a b", {"a b": {"sasl.password": 'quo"te\\ \x7f ä\n'}, "c": {}})
    save_profiles(saved)
    assert load_profiles() == saved
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_environment_chooses_another_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    save_profiles(Profiles("one", {"one": {"x": "1"}, "two": {"x": "2"}}))
    assert chosen_options() == {"x": "1"}
    monkeypatch.setenv("MILLSTREAM_PROFILE", "two")
    assert chosen_options() == {"x": "2"}
    monkeypatch.setenv("MILLSTREAM_PROFILE", "three")
    with pytest.raises(CommandFailed, match=r"no profile three.*one, two"):
        chosen_options()


def test_a_file_that_is_not_toml_is_named(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("profiles = [")
    with pytest.raises(CommandFailed, match=r"config\.toml"):
        load_profiles()


def test_by_default_the_file_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert profiles_file() == Path("/x/millstream/config.toml")


def test_a_command_uses_the_profile_and_flags_count_more() -> None:
    first, second = (f"127.0.0.1:{reserve_port()}" for _ in range(2))
    run_millstream("profile", "set", "here", f"bootstrap.servers={first}")
    assert first in run_millstream("topic", "list").errors
    assert second in run_millstream("topic", "list", "-b", second).errors
    run_millstream("profile", "set", "there", f"bootstrap.servers={second}")
    assert second in run_millstream("--profile", "there", "topic", "list").errors
    assert run_millstream("profile", "use", "there") == Ran(0, "", "using there\n")
    assert second in run_millstream("topic", "list").errors


def test_profiles_are_listed_shown_and_deleted() -> None:
    run_millstream("profile", "set", "p", "bootstrap.servers=h:1")
    refused = run_millstream("profile", "set", "p", "sasl.password=geheim")
    assert refused.exit_code == 2
    assert "everybody on this machine can read a command line" in refused.errors
    assert "geheim" not in refused.errors
    # As a person would, with an editor.
    file = profiles_file()
    file.write_text(file.read_text() + '"sasl.password" = "geheim"\n')
    listed = json.loads(run_millstream("profile", "list", "--json").output)
    assert listed == [{"name": "p", "current": True, "bootstrap": "h:1"}]
    shown = run_millstream("profile", "show")
    assert "h:1" in shown.output
    assert "geheim" not in shown.output
    assert run_millstream("profile", "delete", "p").exit_code == 0
    ran = run_millstream("profile", "show")
    assert (ran.exit_code, "no profile is in use" in ran.errors) == (1, True)
    ran = run_millstream("profile", "set", "p", "nonsense")
    assert ran.exit_code == 2
