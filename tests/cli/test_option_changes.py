from millstream.cli.option_changes import planned
from millstream.wire.apis.describe_configs import DescribedConfig


def option(name: str, value: str | None, *, is_sensitive: bool = False) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        value=value,
        read_only=False,
        is_sensitive=is_sensitive,
        synonyms=[],
        documentation=None,
    )


def test_the_plan_has_the_values_of_now_and_then() -> None:
    present = {"retention.ms": option("retention.ms", "7")}
    wanted = {"retention.ms": "8", "unknown": "1"}
    assert planned(present, wanted) == [("retention.ms", "7", "8"), ("unknown", None, "1")]
    assert planned(present, {"retention.ms": None}) == [("retention.ms", "7", "(not set here)")]


def test_a_secret_is_not_shown() -> None:
    present = {"ssl.key.password": option("ssl.key.password", None, is_sensitive=True)}
    [(_, before, then)] = planned(present, {"ssl.key.password": "new"})
    assert (before, then) == ("(secret)", "(secret)")
    [(_, _, gone)] = planned(present, {"ssl.key.password": None})
    assert gone == "(not set here)"
