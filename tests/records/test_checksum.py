"""The checksum of record batches."""

import subprocess
import sys

from millstream.records.checksum import crc32c


def test_it_is_crc_32c_and_goes_on_from_a_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(b"1234")) == 0xE3069283


def test_it_does_not_look_for_the_version_of_its_package() -> None:
    code = "import sys, millstream.records.batch; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
