"""What may be stored of people: hashes of names, addresses without their ends.

An IPv4 address loses its last byte, an IPv6 address all but 48 bits, a user becomes a salted hash,
and queries of URLs are dropped.
"""

import hashlib
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.lines.arrays import of_numpy, of_texts

_HASHES_KEPT_MAX: Final = 100_000
_IPV4: Final = r"^(\d+\.\d+\.\d+)\.\d+$"
_IPV6: Final = r"^((?:[0-9a-fA-F]*:){3})[0-9a-fA-F:.]*$"
_IPV4_IN_TEXT: Final = r"\b(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}\b"
_QUERY_IN_TEXT: Final = r'\?[^\s"]*'


class Hashes:
    """The same 16 hexadecimal digits for the same text and salt; nothing leads back."""

    def __init__(self, salt: str) -> None:
        self._salted = hashlib.sha256(f"{salt}|".encode())
        self._known: dict[str, str] = {}

    def of(self, texts: pa.StringArray) -> pa.StringArray:
        if not len(texts):
            return texts
        coded = texts.dictionary_encode()
        known = self._known
        # Visitors come back in the next batch.
        if len(known) > _HASHES_KEPT_MAX:
            known.clear()
        hashed = [known.get(each) or self._add(each) for each in coded.dictionary.to_pylist()]
        return of_texts(hashed).take(coded.indices)

    def of_one(self, text: str) -> str:
        return self._known.get(text) or self._add(text)

    def _add(self, text: str) -> str:
        digest = self._salted.copy()
        digest.update(text.encode())
        found = self._known[text] = digest.hexdigest()[:16]
        return found


@lru_cache(4)
def hashes_of(salt: str) -> Hashes:
    """One for all parsers of a process: a worker gets a new parser with every batch."""
    return Hashes(salt)


def masked_addresses(addresses: pa.StringArray) -> pa.StringArray:
    """Without the last byte of IPv4, with only the first three groups of IPv6."""
    short = pc.replace_substring_regex(addresses, _IPV4, r"\1.0")
    return pc.replace_substring_regex(short, _IPV6, r"\1:")


def is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def masked_values(
    values: pa.BinaryArray,
    users: pa.StringArray | None,
    is_kept: NDArray[np.bool_],
    *,
    mask: tuple[str, ...],
    hashes: Hashes,
) -> pa.BinaryArray:
    """Lines as they may be stored: nothing of a row that is not kept, others without addresses.

    Kept rows are text. A user's name in a line that could not be parsed cannot be found.
    """
    rows = of_numpy(np.flatnonzero(is_kept))
    texts = values.take(rows).cast(pa.string())
    if "address" in mask:
        texts = pc.replace_substring_regex(texts, _IPV4_IN_TEXT, r"\1.0")
    if "query" in mask:
        texts = pc.replace_substring_regex(texts, _QUERY_IN_TEXT, "?")
    if users is not None and "user" in mask:
        pairs = zip(texts.to_pylist(), users.take(rows).to_pylist(), strict=True)
        texts = of_texts(
            [
                text.replace(user, hashes.of_one(user)) if text and user else text
                for text, user in pairs
            ]
        )
    places = np.cumsum(is_kept) - 1
    return texts.cast(pa.binary()).take(of_numpy(places, is_kept))
