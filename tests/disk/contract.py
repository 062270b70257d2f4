"""What every `Disk` does: subclass and give `disk` and `root` fixtures."""

from pathlib import Path

import pytest

from dray.disk import Disk
from dray.errors import Conflict, DrayError, NotFound


class DiskContract:
    def test_what_is_written_is_read_in_order_and_by_range(self, disk: Disk, root: Path) -> None:
        file = disk.create(root / "a")
        file.write([b"one", bytearray(b"two"), memoryview(b"xthreex")[1:-1], b""])
        file.write([b"!"])
        file.sync()
        file.close()
        assert disk.read(root / "a") == b"onetwothree!"
        assert disk.read(root / "a", 3, 6) == b"two"
        assert disk.read(root / "a", 6) == b"three!"
        assert disk.size(root / "a") == 12

    def test_a_list_longer_than_one_system_call_takes_is_written_whole(self, disk: Disk, root: Path) -> None:
        parts = [bytes([number % 251]) * (number % 7) for number in range(5_000)]
        file = disk.create(root / "a")
        file.write(parts)
        file.close()
        assert disk.read(root / "a") == b"".join(parts)

    def test_reading_beyond_the_end_gives_what_is_there(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"12345")
        assert disk.read(root / "a", 3, 1 << 60) == b"45"
        assert disk.read(root / "a", 9, 20) == b""
        assert disk.read(root / "a", 4, 2) == b""

    def test_a_name_is_created_once(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"first")
        with pytest.raises(Conflict):
            disk.create(root / "a")
        assert disk.read(root / "a") == b"first"

    def test_an_opened_file_is_appended_to(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"first")
        file = disk.open(root / "a")
        file.write([b" second"])
        file.close()
        assert disk.read(root / "a") == b"first second"

    def test_after_a_cut_writes_go_on_at_the_new_end(self, disk: Disk, root: Path) -> None:
        file = disk.create(root / "a")
        file.write([b"keep lose"])
        file.truncate(5)
        file.write([b"new"])
        file.close()
        assert disk.read(root / "a") == b"keep new"

    def test_missing_files_are_not_found(self, disk: Disk, root: Path) -> None:
        for call in (disk.open, disk.read, disk.sync_file):
            with pytest.raises(NotFound):
                call(root / "nothing")
        with pytest.raises(NotFound):
            disk.create(root / "no-dir" / "a")
        with pytest.raises(NotFound):
            disk.link(root / "nothing", root / "b")
        with pytest.raises(NotFound):
            disk.rename(root / "nothing", root / "b")
        assert disk.size(root / "nothing") is None
        assert disk.stat(root / "nothing") is None
        assert disk.stat(root / "nothing" / "below") is None

    def test_a_link_is_a_second_name_and_never_replaces(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"bytes")
        _write(disk, root / "taken", b"other")
        disk.link(root / "a", root / "b")
        with pytest.raises(Conflict):
            disk.link(root / "a", root / "taken")
        disk.remove(root / "a")
        assert disk.read(root / "b") == b"bytes"
        assert disk.read(root / "taken") == b"other"

    def test_a_rename_replaces(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"new")
        _write(disk, root / "b", b"old")
        disk.rename(root / "a", root / "b")
        assert disk.list(root) == ["b"]
        assert disk.read(root / "b") == b"new"

    def test_removing_what_is_gone_is_fine(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"")
        disk.remove(root / "a")
        disk.remove(root / "a")
        assert disk.list(root) == []

    def test_directories_are_made_with_their_parents_and_twice_is_fine(self, disk: Disk, root: Path) -> None:
        disk.make_dir(root / "x" / "y" / "z")
        disk.make_dir(root / "x" / "y" / "z")
        _write(disk, root / "x" / "y" / "z" / "a", b"1")
        assert disk.list(root / "x" / "y") == ["z"]
        found = disk.stat(root / "x")
        assert found is not None
        assert found.is_dir
        assert disk.size(root / "x") is None
        with pytest.raises(NotFound):
            disk.read(root / "x")
        disk.sync_dir(root / "x" / "y" / "z")

    def test_a_directory_where_a_file_is_gets_an_error(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"")
        with pytest.raises(DrayError):
            disk.make_dir(root / "a")
        with pytest.raises(NotFound):
            disk.list(root / "a")

    def test_a_listing_is_sorted_and_empty_where_there_is_nothing(self, disk: Disk, root: Path) -> None:
        for name in ("b", "a", "c"):
            _write(disk, root / name, b"")
        assert disk.list(root) == ["a", "b", "c"]
        assert disk.list(root / "nothing") == []

    def test_a_file_can_be_synced_by_name_and_closed_twice(self, disk: Disk, root: Path) -> None:
        file = disk.create(root / "a")
        file.write([b"1"])
        file.close()
        file.close()
        disk.sync_file(root / "a")
        with pytest.raises(DrayError):
            file.write([b"2"])
        assert disk.read(root / "a") == b"1"

    def test_bytes_that_are_written_again_are_as_they_were(self, disk: Disk, root: Path) -> None:
        """D2"""
        content = bytes(range(256)) * 10_000
        _write(disk, root / "a", content)
        for start in (0, 5, len(content), len(content) + 5):
            disk.write_again(root / "a", start)
            assert disk.read(root / "a") == content
        with pytest.raises(NotFound):
            disk.write_again(root / "nothing", 0)

    def test_a_stat_tells_size_and_age(self, disk: Disk, root: Path) -> None:
        _write(disk, root / "a", b"123")
        found = disk.stat(root / "a")
        assert found is not None
        assert (found.size, found.is_dir) == (3, False)
        assert found.modified_ms > 1_600_000_000_000


def _write(disk: Disk, path: Path, content: bytes) -> None:
    file = disk.create(path)
    file.write([content])
    file.close()
