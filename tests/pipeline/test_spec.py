"""The pipeline file: read, refused with a reason, compared with what ran before."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from millstream.pipeline.differences import KEPT_NAME, differences, keep
from millstream.pipeline.spec import (
    Change,
    SpecError,
    cores,
    example_python,
    example_spec,
    load_spec,
    parse_duration,
    parse_spec,
)
from tests.pipeline.conftest import MakeSpec


def test_the_file_that_init_writes_is_the_same_as_an_empty_one(tmp_path: Path) -> None:
    assert parse_spec(example_spec(), folder=tmp_path) == parse_spec("", folder=tmp_path)


def test_a_python_file_says_the_same_as_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(example_python())
    assert load_spec(path) == parse_spec("", folder=tmp_path)
    path.write_text(
        "import datetime\nHOURS = 2\n_topic = 'a'\n"
        "parse = {'late': f'{HOURS} hours', 'sources': [{'match': 'x', 'format': 'json'}]}\n"
        "input = {'topics': (_topic, 'b')}\n"
    )
    spec = load_spec(path)
    assert (spec.late_ms, spec.topics) == (7_200_000, ("a", "b"))
    assert spec.sources[0].format == "json"


@pytest.mark.parametrize(
    ("text", "said"),
    [("nmae = 'x'", "nmae is not a setting; do you mean 'name'?"), ("1 / 0", "ZeroDivisionError")],
)
def test_what_is_wrong_in_a_python_file_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pipeline.py"
    path.write_text(text)
    with pytest.raises(SpecError) as failed:
        load_spec(path)
    assert said in str(failed.value)


def test_state_has_a_part_for_every_core_unless_said_otherwise(make_spec: MakeSpec) -> None:
    assert make_spec().state_partitions == cores()
    assert make_spec("state_partitions = 7").state_partitions == 7


def test_settings_are_read(make_spec: MakeSpec) -> None:
    spec = make_spec(
        """
        name = "shop"
        [input]
        topics = ["a", "b"]
        [parse]
        late = "2 hours"
        [[parse.sources]]
        match = "nginx/*"
        format = "access"
        """
    )
    assert spec.topics == ("a", "b")
    assert spec.late_ms == 7_200_000
    assert spec.sources[0].format == "access"
    assert spec.watermark_delay_ms == 7_200_000 + 60_000 + 60_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = 'a b'", "name: 'a b': letters"),
        ("trigger = 'soon'", "is not a duration"),
        ("trigger = '0s'", "not a positive duration"),
        ("[parse]\nlaet = '1s'", "parse.laet is not a setting; do you mean 'late'?"),
        ("[input]\ntopics = []", "no topic"),
        ("[parse]\nmask = ['name']", "not one of address, user, query"),
        ("timezone = 'Mars/Olympus'", "not a time zone"),
        ("state_partitions = 0", "at least 1"),
        ("state_partitions = true", "at least 1"),
        ("[windows]\nerror_share = 3", "between 0 and 1"),
        ("windows = 3", "write [windows]"),
        ("[windows]\ngauges = ['count']", "cannot be the name of a gauge"),
        ("[windows]\ngauges = ['a b']", "cannot be the name of a gauge"),
        ("[windows]\ncounters = ['cpu']", "'cpu' is one of windows.gauges, too"),
        ("[reports]\ndaily = 'yes'", "not true or false"),
        ("[warehouse]\nlocation = 's3:/x'", "is not 's3://BUCKET/FOLDER'"),
        ("[warehouse]\nlocation = 's3://lake/x/'", "is not 's3://BUCKET/FOLDER'"),
        (
            "[warehouse]\nlocation = 's3://lake/x'\nformat = 'parquet'",
            "only tables of format 'delta'",
        ),
        ("[anomalies]\nsensitivity = 0", "not a number above 0"),
        ("[anomalies]\nsensitivity = true", "not a number above 0"),
        ("[anomalies]\nsensitivity = nan", "not a number above 0"),
        ("[[parse.sources]]\nformat = 'json'", "needs match"),
        ("[[parse.sources]]\nmatch = 'x'\nformat = 'xml'", "format is one of"),
        ("[[parse.sources]]\nmatch = 'x'\npattern = '<a>'", "pattern '<a>': it has 0 times"),
        ("[[parse.sources]]\nmatch = 'x'\npattern = 7", "a text, or a list of texts"),
        ("[[parse.sources]]\nmatch = 'x'\npattern = [7]", "a text, or a list of texts"),
        (
            "[[parse.sources]]\nmatch = 'x'\nformat = 'json'\npattern = '<time>'",
            "a pattern stands alone, without format",
        ),
        ("[[parse.sources]]\nmatch = 'x'\npattern = '<time>'\n" * 101, "at most 100"),
        ("[[parse.sources]]\nmatch = 'x'\nfunction = 'nope'", "'module:name'"),
        ("= 3", "not TOML"),
    ],
)
def test_what_is_wrong_is_said(make_spec: MakeSpec, text: str, said: str) -> None:
    with pytest.raises(SpecError) as failed:
        make_spec(text)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("1 minute", 60_000),
        ("2 hours", 7_200_000),
        ("3d", 259_200_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


def test_a_pipeline_that_never_ran_has_no_differences(make_spec: MakeSpec) -> None:
    assert differences(make_spec()) == []


def test_a_change_is_told_with_what_it_means(make_spec: MakeSpec) -> None:
    spec = make_spec()
    keep(spec)
    assert differences(spec) == []
    changed = replace(spec, late_ms=1, silent_after_ms=1, trigger_ms=9)
    assert {each.setting: each.change for each in differences(changed)} == {
        # The watermark depends on it: closed windows would be opened again.
        "parse.late": Change.STATE,
        "windows.silent_after": Change.RESULTS,
        "trigger": Change.FREE,
    }


def test_a_setting_that_did_not_exist_had_its_default(make_spec: MakeSpec) -> None:
    spec = make_spec()
    keep(spec)
    path = spec.home / KEPT_NAME
    kept = json.loads(path.read_text())
    del kept["windows.counters"]
    path.write_text(json.dumps(kept))
    assert differences(spec) == []
    [found] = differences(replace(spec, counters=("served",)))
    assert (found.setting, found.before) == ("windows.counters", [])


def test_the_salt_is_not_written_down(make_spec: MakeSpec) -> None:
    spec = make_spec("[parse]\nsalt = 'very-secret'")
    keep(spec)
    assert "very-secret" not in "".join(each.read_text() for each in spec.home.iterdir())


def test_a_change_that_the_state_cannot_follow_is_refused_with_the_remedy(
    make_spec: MakeSpec,
) -> None:
    from millstream.pipeline.run import check_differences

    spec = make_spec("state_partitions = 2")
    keep(spec)
    check_differences(replace(spec, silent_after_ms=1))
    with pytest.raises(SpecError) as refused:
        check_differences(replace(spec, state_partitions=200))
    assert "state_partitions was 2 and is now 200" in str(refused.value)
    assert "another `home`" in str(refused.value)


def test_state_of_an_older_version_is_refused(make_spec: MakeSpec) -> None:
    from millstream.pipeline.run import check_differences

    spec = make_spec()
    keep(spec)
    path = spec.home / KEPT_NAME
    kept = json.loads(path.read_text())
    del kept["version of the state"]
    path.write_text(json.dumps(kept))
    with pytest.raises(SpecError, match="version of the state was 1 and is now 3"):
        check_differences(spec)


def test_a_pattern_is_one_text_or_several() -> None:
    text = "[[parse.sources]]\nmatch = 'x'\npattern = {}\n"
    [one] = parse_spec(text.format("'<time> <a>'"), folder=Path()).sources
    [two] = parse_spec(text.format("['<time> <a>', '<time>']"), folder=Path()).sources
    assert (one.patterns, two.patterns) == (("<time> <a>",), ("<time> <a>", "<time>"))
    assert one.decides


def test_the_state_of_another_machine_says_what_ran_before(
    make_spec: MakeSpec, tmp_path: Path, bucket: str
) -> None:
    there = make_spec(f'state = "{bucket}"')
    keep(there)
    here = replace(there, home=tmp_path / "other", window_ms=5000)
    assert [each.setting for each in differences(here)] == ["windows.length"]
    # A pipeline that ran is not begun anew by a change of where its state is.
    assert [each.setting for each in differences(replace(there, state_location=""))] == ["state"]
    elsewhere = replace(there, state_location=f"{bucket}/other")
    assert [each.setting for each in differences(elsewhere)] == ["state"]
