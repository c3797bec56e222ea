from pathlib import Path

import pytest

from millstream.config import ConfigError, load_config
from millstream.config.load import refuse_secrets
from millstream.config.secrets import resolved


def test_a_value_comes_from_the_environment() -> None:
    assert resolved("a", "${env:SECRET}", {"SECRET": "x"}) == "x"
    assert resolved("a", "${env::SECRET}", {"SECRET": "x"}) == "x"
    assert resolved("a", 'password="${env:SECRET}";', {"SECRET": "x"}) == 'password="x";'


def test_a_value_comes_from_a_file(tmp_path: Path) -> None:
    whole, options = tmp_path / "password", tmp_path / "secrets.properties"
    whole.write_text("x y\n")
    options.write_text("key.password=z\nother=1\n")
    assert resolved("a", f"${{file:{whole}}}", {}) == "x y"
    assert resolved("a", f"${{file:{options}:key.password}}", {}) == "z"


def test_other_values_stay_as_they_are() -> None:
    assert resolved("a", "${x} $env:Y {file:z}", {}) == "${x} $env:Y {file:z}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${env:ABSENT}", "environment has no ABSENT"),
        ("${file:/absent}", "/absent: No such file"),
    ],
)
def test_what_is_not_there_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"ssl.key.password: .*{problem}"):
        resolved("ssl.key.password", text, {})


def test_a_secret_on_the_command_line_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="can read a command line") as caught:
        refuse_secrets(["ssl.key.password=hunter2"])
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("KEY_PASSWORD", "hunter2")
    sets = ["ssl.key.password=${env:KEY_PASSWORD}"]
    refuse_secrets(sets)
    config = load_config(sets=sets)
    assert config.optional_string("ssl.key.password") == "hunter2"
    file = tmp_path / "server.properties"
    file.write_text("ssl.key.password=hunter3\n")
    assert load_config(file=file).optional_string("ssl.key.password") == "hunter3"
