"""Every default stands in the table of options, and nowhere else in the source.

The source reads options into fields and parameters of its own: `LogConfig(segment_bytes=
topic.int("segment.bytes"))`. Such a field with a default would be a second default of the option.

Covers config/options.txt.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import millstream
from millstream.config import BROKER_OPTIONS, GROUP_OPTIONS, TOPIC_OPTIONS
from millstream.storage.values import LogConfig

SOURCE = Path(millstream.__file__).parent
OPTION_NAMES = {*BROKER_OPTIONS, *TOPIC_OPTIONS, *GROUP_OPTIONS}
# Clients have options too, with defaults of their own.
CLIENTS = {"cli", "pipeline", "spark"}
MODULES = [
    ast.parse(path.read_text(encoding="utf-8"))
    for path in SOURCE.rglob("*.py")
    if path.relative_to(SOURCE).parts[0] not in CLIENTS
]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def nodes_of(kind):
    return (node for module in MODULES for node in ast.walk(module) if isinstance(node, kind))


def comes_from_an_option(value: ast.expr, variables: set[str]) -> bool:
    if isinstance(value, ast.Attribute) and value.attr in LogConfig.__slots__:
        return True
    return any(
        (isinstance(node, ast.Constant) and node.value in OPTION_NAMES)
        or (isinstance(node, ast.Name) and node.id in variables)
        for node in ast.walk(value)
    )


def arguments_from_options(function: Function) -> Iterator[tuple[str, str]]:
    """What is called, and the keyword, of each argument that an option gives its value."""
    variables: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and comes_from_an_option(node.value, variables):
            variables |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for keyword in node.keywords:
                if keyword.arg and comes_from_an_option(keyword.value, variables):
                    yield node.func.id, keyword.arg


def numeric_defaults() -> Iterator[tuple[str, str]]:
    """Class and field, function and parameter, of each one whose default is a number."""
    for owner in nodes_of(ast.ClassDef):
        for node in owner.body:
            if isinstance(node, ast.AnnAssign) and node.value and is_number(node.value):
                yield owner.name, node.target.id
    for owner in nodes_of(Function):
        arguments = owner.args
        positional = [*arguments.posonlyargs, *arguments.args]
        with_default = positional[len(positional) - len(arguments.defaults) :]
        pairs = [
            *zip(with_default, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        yield from ((owner.name, argument.arg) for argument, value in pairs if is_number(value))


def is_number(value: ast.expr | None) -> bool:
    """`7 * DAY_MS` and `1 << 30` count as well."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) or is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def test_what_is_set_from_an_option_has_no_other_default():
    set_from_options = {
        pair for function in nodes_of(Function) for pair in arguments_from_options(function)
    }
    assert ("LogConfig", "segment_bytes") in set_from_options
    assert ("Ensemble", "session_timeout_ms") in set_from_options
    assert ("BatchRules", "message_bytes_max") in set_from_options
    assert set_from_options & set(numeric_defaults()) == set()
