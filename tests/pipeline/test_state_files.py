"""Files of a directory and objects of a bucket: the same to those who keep something there."""

from pathlib import Path

import pytest

from millstream.pipeline.state_files import StateFiles, files_of


@pytest.fixture(params=["directory", "bucket"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> StateFiles:
    if request.param == "directory":
        return files_of(tmp_path / "state")
    address: str = request.getfixturevalue("bucket")
    return files_of(address)


def test_what_is_written_is_read(files: StateFiles) -> None:
    assert files.names() == []
    assert files.read("a") is None
    files.write("a", b"1")
    files.write("a", b"2")
    files.write("b", b"3")
    assert files.read("a") == b"2"
    assert sorted(files.names()) == ["a", "b"]
    assert files.path("a").endswith("/a")
    files.remove("a")
    files.remove("a")
    assert files.names() == ["b"]


def test_a_name_of_a_bucket_is_given_once(bucket: str) -> None:
    files = files_of(bucket)
    assert files.keep("a", b"mine") == b"mine"
    assert files_of(bucket).keep("a", b"theirs") == b"mine"
    assert files.read("a") == b"mine"


def test_folders_of_a_bucket_are_apart(bucket: str) -> None:
    files_of(bucket).write("a", b"1")
    assert files_of(f"{bucket}/below").names() == []
    files_of(f"{bucket}/below").write("b", b"2")
    assert files_of(bucket).names() == ["a"]
