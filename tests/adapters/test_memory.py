"""How much memory may still be used, as a control group's files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.adapters.memory import ControlGroup, Memory, unlimited

MIB = 2**20


def version_2(folder: Path, limit: str, used: int, idle: int) -> ControlGroup:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\nactive_file 7\ninactive_file {idle}\nslab 1\n")
    return ControlGroup(folder)


def version_1(folder: Path, limit: int, used: int, idle: int) -> ControlGroup:
    inside = folder / "memory"
    inside.mkdir()
    (inside / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (inside / "memory.usage_in_bytes").write_text(f"{used}\n")
    (inside / "memory.stat").write_text(f"inactive_file 3\ntotal_inactive_file {idle}\n")
    return ControlGroup(folder)


def test_what_the_kernel_would_give_back_counts_as_free(tmp_path: Path) -> None:
    memory = version_2(tmp_path, str(512 * MIB), 480 * MIB, 80 * MIB).memory()
    assert memory == Memory(400 * MIB, 512 * MIB)
    assert memory.left == 112 * MIB


def test_the_older_version_says_the_same_in_other_files(tmp_path: Path) -> None:
    assert version_1(tmp_path, 512 * MIB, 480 * MIB, 80 * MIB).memory() == Memory(400 * MIB, 512 * MIB)


def test_where_nothing_limits_it_nothing_is_said(tmp_path: Path) -> None:
    assert version_2(tmp_path, "max", 480 * MIB, 0).memory() is None
    other = tmp_path / "other"
    other.mkdir()
    assert version_1(other, 9223372036854771712, 480 * MIB, 0).memory() is None
    assert unlimited() is None


def test_where_there_are_no_such_files_nothing_is_said(tmp_path: Path) -> None:
    assert ControlGroup(tmp_path).memory() is None


@pytest.mark.parametrize("said", ["", "lots"])
def test_files_that_make_no_sense_say_nothing(tmp_path: Path, said: str) -> None:
    group = version_2(tmp_path, str(512 * MIB), 480 * MIB, 0)
    (tmp_path / "memory.current").write_text(said)
    assert group.memory() is None


def test_who_uses_more_than_it_may_has_nothing_left() -> None:
    assert Memory(600 * MIB, 512 * MIB).left == 0
