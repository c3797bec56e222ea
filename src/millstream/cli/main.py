"""Starts every `millstream` command, and turns failures into text.

Commands raise `CommandFailed` (or the broker `StartError`); here that becomes one line on
stderr and an exit code. Only data goes to stdout.
"""

import contextlib
import errno
import os
import sys

import click

from millstream import __version__
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.lazy import LazyCommand, LazyGroup, OutputClosed
from millstream.errors import StartError

_COMMANDS = {
    "dev": LazyCommand("millstream.cli.dev", "dev", "Run a node for development."),
    "run": LazyCommand("millstream.cli.run", "run", "Run a command with a node beside it."),
    "wait": LazyCommand("millstream.cli.wait", "wait", "Wait until a broker answers."),
    "broker": LazyCommand("millstream.cli.broker", "broker", "Run a node."),
    "topic": LazyCommand(
        "millstream.cli.topic", "topic", "Create, list, describe and delete topics."
    ),
    "produce": LazyCommand("millstream.cli.produce", "produce", "Send lines from stdin."),
    "consume": LazyCommand("millstream.cli.consume", "consume", "Print the records of a topic."),
    "export": LazyCommand("millstream.cli.transfer", "export", "Write a topic to a file."),
    "import": LazyCommand("millstream.cli.transfer", "import_file", "Send a file to a topic."),
    "mirror": LazyCommand("millstream.cli.transfer", "mirror", "Copy a topic to another cluster."),
    "bench": LazyCommand("millstream.cli.bench", "bench", "Measure throughput and latency."),
    "group": LazyCommand(
        "millstream.cli.group", "group", "List, describe, reset and delete consumer groups."
    ),
    "share": LazyCommand(
        "millstream.cli.share", "share", "List, describe, reset and delete share groups."
    ),
    "storage": LazyCommand(
        "millstream.cli.storage", "storage", "Inspect the files of a data directory."
    ),
    "txn": LazyCommand("millstream.cli.txn", "txn", "List, describe and abort transactions."),
    "user": LazyCommand(
        "millstream.cli.user", "user", "Add, list and delete users, and change passwords."
    ),
    "cluster": LazyCommand(
        "millstream.cli.cluster", "cluster", "Start, describe, size and operate a cluster."
    ),
    "node": LazyCommand("millstream.cli.node", "node", "Show and change options of a node."),
    "acl": LazyCommand("millstream.cli.acl", "acl", "Add, list and delete ACLs."),
    "quota": LazyCommand("millstream.cli.quota", "quota", "Set, list and delete quotas."),
    "console": LazyCommand(
        "millstream.cli.console", "console", "Serve the web console of a cluster."
    ),
    "registry": LazyCommand(
        "millstream.cli.registry", "registry", "Serve a schema registry on a cluster."
    ),
    "secure": LazyCommand(
        "millstream.cli.secure", "secure", "Create certificates, an admin and config files."
    ),
    "certs": LazyCommand("millstream.cli.certs", "certs", "Show, issue and renew certificates."),
    "zookeeper": LazyCommand(
        "millstream.cli.zookeeper", "zookeeper", "Run a ZooKeeper for development."
    ),
    "ship": LazyCommand("millstream.cli.ship", "ship", "Send the lines of log files, and follow."),
    "loadgen": LazyCommand("millstream.cli.loadgen", "loadgen", "Generate the logs of a web site."),
    "pipeline": LazyCommand(
        "millstream.cli.pipeline", "pipeline", "Turn topics of log lines into windows and tables."
    ),
    "report": LazyCommand("millstream.cli.report", "report", "Write the report of a day."),
    "templates": LazyCommand(
        "millstream.cli.templates", "templates", "Group the messages of log lines by template."
    ),
    "query": LazyCommand(
        "millstream.cli.query", "query", "Run SQL over tables of a pipeline, and topics."
    ),
    "demo": LazyCommand("millstream.cli.demo", "demo", "Show it all: traffic, windows, alerts."),
    "doctor": LazyCommand(
        "millstream.cli.doctor", "doctor", "Check this machine, the broker and the libraries."
    ),
    "generate": LazyCommand(
        "millstream.cli.generate", "generate", "Print files for systemd, docker and others."
    ),
    "profile": LazyCommand(
        "millstream.cli.profile", "profile", "Keep addresses and logins under names."
    ),
    "completion": LazyCommand(
        "millstream.cli.completion", "completion", "Print a script for a shell's completion."
    ),
}

_ALIASES = {"topics": "topic", "groups": "group"}

# Of writes to an open file.
_OUTPUT_PROBLEMS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_HELP = """An event log that speaks the Kafka wire protocol.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 timeout, 4 no broker reached, 130 Ctrl-C,
141 output closed by its reader.
"""


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from millstream.broker.network import receiving
        from millstream.records.columns import IMPLEMENTATION

        click.echo(
            f"millstream {__version__}"
            f" (record loops: {IMPLEMENTATION.NAME}, receiving: {receiving.NAME})"
        )
        context.exit()


def _print_help_json(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from millstream.cli.help_json import print_tree

        print_tree(context, parameter, wanted)


def _choose_profile(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    if name is not None:
        # Also for the commands that this one starts.
        os.environ["MILLSTREAM_PROFILE"] = name


root = LazyGroup(
    name="millstream",
    help=_HELP,
    table=_COMMANDS,
    aliases=_ALIASES,
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        ),
        click.Option(
            ["--help-json"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_help_json,
            help="Print all commands and options as JSON and exit.",
        ),
        click.Option(
            ["--profile"],
            metavar="NAME",
            is_eager=True,
            expose_value=False,
            callback=_choose_profile,
            help="Use this profile; also from MILLSTREAM_PROFILE.",
        ),
    ],
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process."""
    if not __debug__:
        # Broken invariants stop the node before it damages data; -O would remove the checks.
        sys.exit("millstream: refusing to run under `python -O`, which removes its safety checks")
    exit_code = _run(arguments)
    if exit_code in (ExitCode.INTERRUPTED, ExitCode.UNREACHABLE) and arguments is None:
        # Client libraries wait for their connections when Python ends them; a person does not.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def _run(arguments: list[str] | None) -> int:
    try:
        result = root.main(args=arguments, prog_name="millstream", standalone_mode=False)
        # Inside the try: a closed output is noticed at the last flush too.
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as wrong:
        if _wants_json(arguments):
            return _say(wrong.format_message(), ExitCode(wrong.exit_code), arguments)
        wrong.show()
        return wrong.exit_code
    except CommandFailed as failed:
        return _say(str(failed), failed.exit_code, arguments)
    except StartError as failed:
        return _say(str(failed), ExitCode.FAILED, arguments)
    except (BrokenPipeError, OutputClosed):
        # A command's BrokenPipeError comes as OutputClosed (see `LazyGroup.invoke`), that of the
        # last flush as it is.
        _give_up_stdout()
        return ExitCode.OUTPUT_CLOSED
    except OSError as failed:
        if os.environ.get("MILLSTREAM_LOG") == "debug":
            raise
        return _say_os_error(failed, arguments)
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED


def _say_os_error(failed: OSError, arguments: list[str] | None) -> int:
    """A file that cannot be read or written, or an output device that is full."""
    reason = failed.strerror or str(failed)
    if failed.filename is not None:
        return _say(f"{failed.filename}: {reason}", ExitCode.FAILED, arguments)
    if failed.errno in _OUTPUT_PROBLEMS:
        _give_up_stdout()
        return _say(f"cannot write the output: {reason}", ExitCode.FAILED, arguments)
    return _say(reason, ExitCode.FAILED, arguments)


def _give_up_stdout() -> None:
    """Python would complain once more when it closes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str, exit_code: ExitCode, arguments: list[str] | None) -> int:
    # Imported late: help is quick, and most commands do not fail.
    from millstream.cli.output import echo, print_error_json

    if _wants_json(arguments):
        print_error_json(text, exit_code)
    else:
        echo(f"millstream: {text}", err=True)
    return exit_code


def _wants_json(arguments: list[str] | None) -> bool:
    """The failure may be one of reading the options, so they are looked for in the raw line."""
    given = sys.argv[1:] if arguments is None else arguments
    return "--json" in given[: given.index("--")] if "--" in given else "--json" in given
