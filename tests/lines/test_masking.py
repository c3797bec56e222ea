"""Hashes that tell people apart, and addresses that do not."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

from millstream.lines import masking
from millstream.lines.masking import Hashes, masked_addresses, masked_values


def test_a_hash_is_of_salt_and_text_and_null_stays_null() -> None:
    expected = hashlib.sha256(b"s|ann").hexdigest()[:16]
    hashes = Hashes("s")
    assert hashes.of(pa.array(["ann", None, "ann"])).to_pylist() == [expected, None, expected]
    assert hashes.of_one("ann") == expected
    assert Hashes("t").of_one("ann") != expected


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_HASHES_KEPT_MAX", 3)
    hashes = Hashes("s")
    names = [f"user {number}" for number in range(20)]
    one_by_one = [hashes.of(pa.array([name])).to_pylist()[0] for name in names]
    assert one_by_one == Hashes("s").of(pa.array(names)).to_pylist()


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("203.0.113.77", "203.0.113.0"),
        ("2001:db8:1:2::77", "2001:db8:1::"),
        ("::ffff:1.2.3.4", "::ffff::"),
        ("host.example", "host.example"),
        (None, None),
    ],
)
def test_addresses_lose_their_ends(address: str | None, masked: str | None) -> None:
    assert masked_addresses(pa.array([address], pa.string())).to_pylist() == [masked]


def test_kept_values_stay_in_their_rows() -> None:
    values = pa.array([b"a", b"1.2.3.4 ann /x?q=1 y", b"c", b"ann"], pa.binary())
    users = pa.array([None, "ann", None, None], pa.string())
    found = masked_values(
        values,
        users,
        np.array([False, True, False, True]),
        mask=("address", "user", "query"),
        hashes=Hashes("s"),
    )
    hashed = Hashes("s").of_one("ann").encode()
    assert found.to_pylist() == [None, b"1.2.3.0 " + hashed + b" /x? y", None, b"ann"]
