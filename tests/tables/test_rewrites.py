"""Which small files become fewer."""

from random import Random

from dray.machine.streams import FloorReason, RaiseFloor
from dray.tables.rewrites import RewriteRules, rewrites, worth
from tests.machine.mill import Mill
from tests.machine.scribe import HOUR

NEVER_MS = 1 << 50


def rules(files: int = 4, file_size: int = 1 << 20, settled_ms: int = NEVER_MS, *, tables: bool = True) -> RewriteRules:
    return RewriteRules(files=files, file_size=file_size, settled_ms=settled_ms, tables=tables)


def test_enough_files_are_worth_it_if_none_is_larger_than_all_behind_it():
    """RW1"""
    assert worth([1] * 9, 10) is None
    assert worth([1] * 10, 10) == 0
    assert worth([100, *[1] * 10], 10) == 1
    assert worth([10, *[1] * 10], 10) == 0
    assert worth([8, 4, 2, 1], 2) is None
    assert worth([], 2) is None


def test_a_byte_is_written_again_as_often_as_its_file_doubles():
    """RW1: ten thousand small files are not ten thousand times written."""
    dice = Random(7)
    files, written, total = [], 0, 0
    for _ in range(10_000):
        files.append(dice.randint(1, 20))
        total += files[-1]
        begin = worth(files, 10)
        if begin is not None:
            whole = sum(files[begin:])
            files[begin:] = [whole]
            written += whole
    assert len(files) < 40
    assert written < 14 * total, f"{written / total:.1f} times"


def filled(*sizes: int, **how) -> tuple[Mill, int]:
    """A stream of files, each made of so many batches of three records and 100 bytes, and one batch behind them."""
    mill = Mill()
    (stream,) = mill.topic("orders", 1)
    end = 0
    for size in sizes:
        for _ in range(size):
            mill.append((stream, 3))
        end += 3 * size
        mill.compact(stream, end, **how)
    mill.append((stream, 3))
    return mill, stream


def found(mill: Mill, asked: RewriteRules) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(one.start, one.end, one.cuts) for one in rewrites({0: mill.machine}, asked)]


def test_neighbouring_small_files_are_due_when_they_are_many_enough():
    """R-144: the last trigger."""
    mill, _ = filled(1, 1, 1)
    assert found(mill, rules(files=4)) == []
    assert found(mill, rules(files=3)) == [(0, 9, (9,))]
    assert list(rewrites({0: mill.machine}, rules(files=3), "another")) == []


def test_large_files_are_left_alone_and_part_the_others():
    """RW1, R-145"""
    mill, stream = filled(1, 1, 10, 1, 1, 1)
    assert found(mill, rules(files=3, file_size=1_000)) == [(36, 45, (45,))]
    assert found(mill, rules(files=2, file_size=1_000)) == [(0, 6, (6,))]
    mill.take(stream, 45, 48)
    assert found(mill, rules(files=2, file_size=1_000)) == [], "it has a task"


def test_what_is_made_of_them_is_cut_at_the_target_size_and_is_less():
    """RW1, R-145"""
    mill, _ = filled(4, 4, 4, 4, 4)
    assert found(mill, rules(files=2, file_size=900)) == [(0, 60, (24, 48, 60))]
    mill, _ = filled(4, 4)
    assert found(mill, rules(files=2, file_size=801)) == [], "two of them are no file less"


def test_what_is_old_is_put_together_however_few_they_are():
    mill, _ = filled(5, 1)
    assert found(mill, rules(settled_ms=HOUR)) == []
    assert found(mill, rules(settled_ms=0)) == [(0, 18, (18,))]


def test_a_file_that_the_log_start_has_cut_is_left_alone():
    """RW1: its table may keep what the log has dropped."""
    mill, stream = filled(1, 1, 1)
    task = mill.take(stream, 0, 6, rewrite=True)
    mill.write(stream, task, 6)
    mill.commit(stream, task)
    mill.writer.do(RaiseFloor(stream=stream, reason=FloorReason.DELETE_RECORDS, bound=3))
    mill.swap(stream, task)
    mill.finish(stream, task)
    assert mill.machine.streams.find(stream).index.row(0).start == 3
    assert found(mill, rules(files=2, settled_ms=0)) == []


def test_files_of_tables_and_others_are_not_mixed():
    mill, _ = filled(1, 1, table=False)
    assert found(mill, rules(files=2)) == []
    assert found(mill, rules(files=2, tables=False)) == [(0, 6, (6,))]
