"""What Spark imports is light and never fails; the core is complete without Spark.

Covers spark.
"""

import subprocess
import sys

from tests.support.broker import Broker

BLOCKED = """
import sys
for name in ("pyspark", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_module_that_spark_finds_loads_little() -> None:
    found = run(
        "import sys, pyspark_millstream as m\n"
        "print(m.DefaultSource.name(), 'pyarrow' in sys.modules, 'millstream' in sys.modules)"
    )
    assert found.split() == ["millstream", "False", "False"]


def test_planning_a_stream_loads_nothing_that_only_tasks_need() -> None:
    found = run(
        "import sys, millstream.spark.source, millstream.spark.stream\n"
        "print(*(name for name in sys.modules if name.startswith('millstream.')))"
    ).split()
    assert "millstream.spark.planning" in found
    for name in ("records", "storage", "warehouse", "spark.fetching", "spark.arrow"):
        assert f"millstream.{name}" not in found


def test_every_name_of_the_package_can_be_called() -> None:
    found = run(
        "import millstream.spark.upserts, millstream.spark as m\n"
        "print(all(callable(getattr(m, name)) for name in m.__all__))"
    )
    assert found.split() == ["True"]


def test_without_spark_the_module_imports_and_register_says_what_to_install() -> None:
    found = run(
        BLOCKED + "import pyspark_millstream as m\n"
        "print(hasattr(m, 'DefaultSource'))\n"
        "try:\n    m.register(None)\nexcept ImportError as error:\n    print(error)"
    )
    assert found.startswith("False")
    assert "millstream[spark]" in found


def test_the_core_needs_nothing_of_spark() -> None:
    found = run(
        BLOCKED + "from click.testing import CliRunner\n"
        "from millstream.cli.main import root\n"
        "import millstream.broker.broker, millstream.testing.broker, millstream.records.rows\n"
        "print(CliRunner().invoke(root, ['--help']).exit_code)"
    )
    assert found.strip() == "0"


def test_a_worker_does_not_wait_for_what_only_tests_need(kafka: Broker) -> None:
    host, _, port = kafka.bootstrap.rpartition(":")
    found = run(
        "import sys\n"
        "from millstream.spark.cluster import ClientSettings, Cluster\n"
        "from millstream.client.blocking import Address\n"
        f"Cluster(ClientSettings((Address('{host}', {port}),))).describe_topics(['t'])\n"
        "print([name for name in ('kio', 'hypothesis', 'asyncio') if name in sys.modules])"
    )
    assert found.strip() == "[]"
