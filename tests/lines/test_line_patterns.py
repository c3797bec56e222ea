"""Patterns as people write them: the steps they become, and what is said about wrong ones."""

import pytest

from millstream.lines.line_patterns import PatternError, Step, StepKind, compile_pattern


def test_a_pattern_becomes_steps_with_single_blanks() -> None:
    steps = compile_pattern(" [<time:%m-%d  %H:%M>]  <pid>\t<thread...> <<<_>: <message> ")
    assert steps == (
        Step(StepKind.LITERAL, "", b"["),
        Step(StepKind.TIME, "time", b"%m-%d %H:%M"),
        Step(StepKind.LITERAL, "", b"] "),
        Step(StepKind.WORD, "pid", b""),
        Step(StepKind.LITERAL, "", b" "),
        Step(StepKind.WIDE, "thread", b""),
        Step(StepKind.LITERAL, "", b" <"),
        Step(StepKind.WORD, "", b""),
        Step(StepKind.LITERAL, "", b": "),
        Step(StepKind.WORD, "message", b""),
    )


def test_a_time_goes_by_any_of_its_names_and_needs_no_format() -> None:
    assert compile_pattern("<ts> <message>")[0] == Step(StepKind.TIME, "ts", b"")
    assert compile_pattern("<seen:%s>,<message>")[0] == Step(StepKind.TIME, "seen", b"%s")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("<message>", "0 times; every line needs one"),
        ("<time> <ts>", "2 times"),
        ("", "0 times"),
        ("<time> <le vel>", "'<le vel>' is not a field such as <level>"),
        ("<time> a < b", "for the sign itself write <<"),
        ("<time> <a><b>", "nothing separates <a> from <b>"),
        ("<time><b>", "nothing separates <time> from <b>"),
        ("<time> <_><message>", "nothing separates <_> from <message>"),
        ("<time> <a> <a>", "<a> is there twice"),
        ("<time...> <a>", "without ..."),
        ("<time:%Q> <a>", "%Q in '%Q' is not one of %Y, %y"),
        ("<time:%H:%M:%> <a>", "% in '%H:%M:%' is not one of"),
        ("<time:%d %H:%M> <a>", "needs a month (%m, %b) and a day"),
        ("<time:%Y %H:%M> <a>", "has a year, and so needs a month"),
        ("<time:%M:%S> <a>", "neither a day nor an hour"),
        ("<time:%I:%M> <a>", "needs AM or PM"),
        ("<time>" + "x" * 1000, "longer than 1,000 characters"),
    ],
)
def test_a_wrong_pattern_is_refused_with_what_to_write(pattern: str, said: str) -> None:
    with pytest.raises(PatternError) as refused:
        compile_pattern(pattern)
    assert said in str(refused.value)
