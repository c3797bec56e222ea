import pytest

from millstream.records.partitioning import partition_of_key


# As Kafka's own partitioner, from its tests of murmur2: toPositive(hash) % 1000.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_a_key_goes_where_kafka_sends_it(key: bytes, hashed: int) -> None:
    assert partition_of_key(key, 1000) == (hashed & 0x7FFFFFFF) % 1000
