"""The settings file, followed while the service runs: by its text, for what can be changed, keeping what was good."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.core.safety_switches import Switches
from extender.settings.settings import SWITCHES, BadSettings, Settings, load_settings, switches_in
from extender.settings.settings_file import SettingsFile


class Followed:
    def __init__(self, path: Path, **given: Any) -> None:
        load: Callable[[], Settings] = partial(load_settings, path, **given)
        self.changes: list[Switches] = []
        self.broken = 0
        self.file = SettingsFile(
            path, load, load(), changed=lambda now: self.changes.append(switches_in(now)), broken=self._broke
        )

    def _broke(self) -> None:
        self.broken += 1

    def look(self) -> list[str]:
        """The lines of the log that looking at the file gave."""
        with capture_logs() as lines:
            self.file.look()
        return [str(line.get("settings") or line["event"]) for line in lines]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text("port: 0\n")
    return file


def test_a_file_that_stays_as_it_was_changes_nothing(path: Path) -> None:
    followed = Followed(path)
    assert [followed.look() for _ in range(3)] == [[], [], []]
    assert not followed.changes


def test_a_switch_takes_effect_when_the_file_is_written(path: Path) -> None:
    followed = Followed(path)
    followed.look()
    path.write_text("port: 0\nobserve_only: true\n")
    followed.look()
    path.write_text("port: 0\n")
    followed.look()
    assert followed.changes == [Switches(observe_only=True), Switches()]


def test_a_change_made_before_the_first_look_is_seen(path: Path) -> None:
    followed = Followed(path)
    path.write_text("backfill_reservation: false\nport: 0\n")
    followed.look()
    assert followed.changes == [Switches(backfill_reservation=False)]


def test_a_link_that_is_put_in_place_of_another_as_kubelets_do_is_followed(path: Path, tmp_path: Path) -> None:
    for number, text in enumerate(("port: 0\n", "port: 0\npreempts_for_gangs: false\n")):
        version = tmp_path / f"..v{number}"
        version.mkdir()
        (version / "escher.yaml").write_text(text)
    data, mounted = tmp_path / "..data", tmp_path / "escher.yaml"
    data.symlink_to(tmp_path / "..v0")
    mounted.symlink_to(Path("..data") / "escher.yaml")
    followed = Followed(mounted)
    followed.look()
    new = tmp_path / "..data_tmp"
    new.symlink_to(tmp_path / "..v1")
    new.rename(data)
    followed.look()
    assert followed.changes == [Switches(gang_preemption=False)]


@pytest.mark.parametrize("text", ["observe_only: perhaps\n", "observe_onyl: true\n", "{", "- 1\n", "\xff"])
def test_a_file_that_cannot_be_used_changes_nothing_and_is_told_of_once(path: Path, text: str) -> None:
    path.write_text("observe_only: true\n")
    followed = Followed(path)
    followed.look()
    path.write_bytes(text.encode("latin-1"))
    assert [len(followed.look()) for _ in range(3)] == [1, 0, 0]
    assert not followed.changes
    assert followed.broken == 1


def test_a_file_that_is_away_changes_nothing_and_what_it_says_when_it_is_back_does(path: Path) -> None:
    followed = Followed(path)
    followed.look()
    path.unlink()
    assert [len(followed.look()) for _ in range(2)] == [1, 0]
    path.write_text("port: 0\nevicts_parts: false\n")
    followed.look()
    assert followed.changes == [Switches(evict_partial_gangs=False)]


def test_a_setting_that_needs_a_restart_is_named_once_and_does_not_hold_the_others_up(path: Path) -> None:
    followed = Followed(path)
    followed.look()
    path.write_text("port: 1\nobserve_only: true\n")
    assert followed.look() == ["['port']"]
    path.write_text("port: 1\nobserve_only: false\n")
    assert followed.look() == []
    assert followed.changes == [Switches(observe_only=True), Switches()]


def test_what_was_given_on_the_command_line_still_overrides_the_file(path: Path) -> None:
    followed = Followed(path, port=7)
    path.write_text("port: 9\n")
    assert followed.look() == []


def test_every_switch_of_the_switches_is_changeable_and_described() -> None:
    assert switches_in(Settings.model_validate({})) == Switches()
    assert set(SWITCHES) == set(Switches.__dataclass_fields__)
    assert all(field.description for name, field in Settings.model_fields.items() if name != "log_level")


@pytest.mark.parametrize(
    "text",
    [
        "scheduler_names: []",
        "evictions_per_second: 0",
        "backfill_max_share: 0",
        "backfill_max_share: 1.5",
        "backfill_max_seconds: 0",
    ],
)
def test_a_number_without_sense_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(BadSettings):
        load_settings(path)
