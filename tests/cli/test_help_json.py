"""The tree of commands for programs."""

import json

from tests.support.command_line import run_millstream


def test_all_commands_and_options_are_in_the_tree() -> None:
    ran = run_millstream("--help-json")
    assert (ran.exit_code, ran.errors) == (0, "")
    tree = json.loads(ran.output)
    commands = {each["name"]: each for each in tree["commands"]}
    topic = {each["name"]: each for each in commands["topic"]["commands"]}
    assert {"create", "list", "describe", "delete", "trim"} <= set(topic)
    partitions = next(p for p in topic["create"]["parameters"] if p["name"] == "partitions")
    assert partitions["flags"] == ["-p", "--partitions"]
    assert all(each["help"] for each in commands.values())
