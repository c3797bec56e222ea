"""A login in a URL, and which other flags refuse secrets."""

import click
import pytest
from click.testing import CliRunner

from millstream.cli.failure import CommandFailed
from millstream.cli.schemas import registry_option
from tests.support.command_line import run_millstream


@click.command()
@registry_option("The schema registry.")
def command(registry_url: str | None) -> None:
    click.echo(registry_url)


def test_a_password_in_a_url_comes_from_the_environment_alone() -> None:
    url = "https://ann:hunter2@host:8081"
    ran = CliRunner().invoke(command, ["--registry", url])
    assert isinstance(ran.exception, CommandFailed)
    assert "MILLSTREAM_REGISTRY" in str(ran.exception)
    assert "hunter2" not in str(ran.exception)
    assert CliRunner().invoke(command, [], env={"MILLSTREAM_REGISTRY": url}).output == f"{url}\n"
    for harmless in ("https://ann@host:8081", "http://host:8081/a:b@c"):
        assert CliRunner().invoke(command, ["--registry", harmless]).output == f"{harmless}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["cluster", "start", "--data-dir", "absent"],
        ["cluster", "adopt", "--data-dir", "absent", "--zookeeper", "h:1"],
        ["storage", "compact", "."],
        ["broker"],
        ["dev"],
    ],
)
def test_commands_with_options_of_a_node_refuse_secrets(arguments: list[str]) -> None:
    ran = run_millstream(*arguments, "--set", "ssl.key.password=hunter2")
    assert ran.exit_code != 0
    assert "can read a command line" in ran.errors
    assert "hunter2" not in ran.errors
