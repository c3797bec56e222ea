import pytest

from millstream.testing.data_folder import check_storage, new_folder


@pytest.mark.parametrize("storage", ["memory", "disk"])
def test_folders_are_new_and_empty(storage: str) -> None:
    check_storage(storage)
    one, other = new_folder(storage), new_folder(storage)
    assert one != other
    assert list(one.iterdir()) == []
    one.rmdir()
    other.rmdir()


def test_another_storage_is_an_error() -> None:
    with pytest.raises(ValueError, match="memory, disk, not 'tape'"):
        check_storage("tape")
