"""The real disk: the contract, and the two refusals that an operator meets."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dray.disk import DiskFull, LocalDisk, LocalFile, ReadOnly, SyncFailed
from tests.disk.contract import DiskContract
from tests.disk.mounts import Mounted, small_filesystem


class TestLocalDisk(DiskContract):
    @pytest.fixture
    def disk(self) -> LocalDisk:
        return LocalDisk()

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    with small_filesystem(tmp_path / "small") as mount:
        yield mount


def test_a_full_disk_says_so_and_keeps_what_was_there(mounted: Mounted) -> None:
    disk = LocalDisk()
    kept = disk.create(mounted.path / "kept")
    kept.write([b"precious"])
    kept.sync()
    big = disk.create(mounted.path / "big")
    with pytest.raises(DiskFull, match="no space left: free some"):
        big.write([bytes(1 << 20)] * 16)
    assert disk.read(mounted.path / "kept") == b"precious"
    big.close()
    disk.remove(mounted.path / "big")
    kept.write([b" again"])
    kept.sync()
    assert disk.read(mounted.path / "kept") == b"precious again"
    kept.close()


def test_a_read_only_file_system_says_so_and_still_reads(mounted: Mounted) -> None:
    disk = LocalDisk()
    file = disk.create(mounted.path / "kept")
    file.write([b"precious"])
    file.sync()
    file.close()
    mounted.remount_read_only()
    for call in (
        lambda: disk.create(mounted.path / "a"),
        lambda: disk.open(mounted.path / "kept"),
        lambda: disk.link(mounted.path / "kept", mounted.path / "b"),
        lambda: disk.rename(mounted.path / "kept", mounted.path / "b"),
        lambda: disk.remove(mounted.path / "kept"),
        lambda: disk.make_dir(mounted.path / "d"),
    ):
        with pytest.raises(ReadOnly, match="remount it"):
            call()
    assert disk.read(mounted.path / "kept") == b"precious"


def test_a_failed_sync_is_not_tried_again(tmp_path: Path) -> None:
    """D2, with a descriptor that the kernel refuses to sync: a pipe."""
    pipe = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert pipe.stdin is not None
    file = LocalFile(pipe.stdin.fileno(), tmp_path / "pipe")
    with pytest.raises(SyncFailed, match="did not take the bytes"):
        file.sync()
    with pytest.raises(SyncFailed, match="an earlier sync of this file failed"):
        file.sync()
    pipe.stdin.close()
    pipe.wait()


def test_an_existing_directory_whose_maker_died_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D3: a directory that is there may not be durable yet."""
    synced: list[Path] = []
    monkeypatch.setattr(LocalDisk, "sync_dir", lambda _self, path: synced.append(path))
    (tmp_path / "found").mkdir()
    LocalDisk().make_dir(tmp_path / "found" / "new" / "newer")
    assert synced == [tmp_path, tmp_path / "found", tmp_path / "found" / "new"]


def test_a_write_that_the_kernel_cuts_short_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal or a limit may cut any call at any byte, also within a buffer."""
    whole_writev, whole_write = os.writev, os.write
    parts = [b"first", b"", b"second and longer", memoryview(bytearray(b"third"))]
    content = b"".join(parts)
    for cut in range(len(content) + 1):
        monkeypatch.setattr(os, "writev", lambda fd, buffers, cut=cut: whole_write(fd, b"".join(buffers)[:cut]))
        monkeypatch.setattr(os, "write", lambda fd, data: whole_write(fd, data[:3]))
        file = LocalDisk().create(tmp_path / str(cut))
        file.write(parts)
        file.close()
        monkeypatch.setattr(os, "writev", whole_writev)
        monkeypatch.setattr(os, "write", whole_write)
        assert (tmp_path / str(cut)).read_bytes() == content, cut


@pytest.mark.parametrize("size", [1, 300, 5_000])
def test_many_buffers_are_written_in_order_whatever_their_size(tmp_path: Path, size: int) -> None:
    buffers = [
        buffer for number in range(700) for buffer in (b"%04d" % number, memoryview(bytes([number % 256]) * size))
    ]
    file = LocalDisk().create(tmp_path / "many")
    file.write(buffers)
    file.write(buffers[:40])
    file.close()
    assert (tmp_path / "many").read_bytes() == b"".join(buffers) + b"".join(buffers[:40])
