"""A setting that was renamed is understood by its old name for as long as is promised, and one is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender import __version__
from extender.settings import settings_renamed
from extender.settings.settings import BadSettings, Settings, load_settings
from extender.settings.settings_renamed import RENAMED, Renamed, as_promised, version

TABLE = {"bypasses": Renamed("backfill_after_skips", since="0.1", until="0.4")}


@pytest.fixture
def renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this version had renamed one."""
    monkeypatch.setattr(settings_renamed, "RENAMED", TABLE)


@pytest.mark.usefixtures("renamed")
class TestAnOldName:
    def test_is_understood_and_told_with_the_new_one(self, tmp_path: Path) -> None:
        file, heard = tmp_path / "settings.yaml", list[str]()
        file.write_text("bypasses: 3\nport: 0\n")
        assert load_settings(file, heard=heard.append) == Settings.model_validate(
            {"backfill_after_skips": 3, "port": 0}
        )
        assert heard == ["bypasses is named backfill_after_skips since version 0.1, and is refused from 0.4 on"]

    def test_gives_way_to_the_command_line_as_the_new_one_does(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("bypasses: 3\n")
        assert load_settings(file, backfill_after_skips=5).backfill_after_skips == 5

    def test_beside_the_new_one_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("bypasses: 3\nbackfill_after_skips: 4\n")
        with pytest.raises(BadSettings, match="bypasses and backfill_after_skips are the same setting"):
            load_settings(file)

    def test_with_a_bad_value_is_complained_of_by_the_new_one(self, tmp_path: Path) -> None:
        file = tmp_path / "settings.yaml"
        file.write_text("bypasses: -3\n")
        with pytest.raises(BadSettings, match="backfill_after_skips = -3"):
            load_settings(file)


def test_what_has_its_name_is_told_nobody_of(tmp_path: Path) -> None:
    file, heard = tmp_path / "settings.yaml", list[str]()
    file.write_text("backfill_after_skips: 3\n")
    load_settings(file, heard=heard.append)
    assert heard == []


def test_a_name_that_nothing_ever_had_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("bypasses: 3\n")
    with pytest.raises(BadSettings, match="bypasses = 3"):
        load_settings(file)


# -- the table itself


def test_each_entry_leads_to_a_setting_and_is_kept_for_as_long_as_is_promised() -> None:
    for old, entry in RENAMED.items():
        assert old not in Settings.model_fields
        assert entry.to in Settings.model_fields
        assert as_promised(entry)
        assert version(__version__) < version(entry.until), f"{old} is to be refused by now: remove it"


@pytest.mark.parametrize(
    ("since", "until", "kept"),
    [("0.1", "0.4", True), ("0.1", "0.3", False), ("0.9", "1.0", True), ("1.2", "1.12", True)],
)
def test_two_minor_versions_are_promised(since: str, until: str, kept: bool) -> None:
    assert as_promised(Renamed("port", since, until)) is kept
