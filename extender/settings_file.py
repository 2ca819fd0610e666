"""The settings file, followed while the service runs: what can be changed takes effect, of the rest it is said that it
needs a restart.

It is read every few seconds and compared as text: a ConfigMap's file is a link that is put in place of another, editors
do the like, and times of files tell neither. A file that cannot be used changes nothing, and is complained of once.
Must not know what the settings are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from extender.settings import CHANGEABLE, BadSettings, Settings

_log = structlog.get_logger(__name__)

LOOK_EVERY = 3.0
"""Seconds."""


class SettingsFile:
    """`load` reads the file with what overrides it, as at the start; raises BadSettings. `changed` takes new settings
    of which something CHANGEABLE is another; `broken` is called once for each text that cannot be used."""

    def __init__(
        self,
        path: Path,
        load: Callable[[], Settings],
        at_start: Settings,
        *,
        changed: Callable[[Settings], None],
        broken: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._path = path
        self._load = load
        self._at_start = at_start
        self._in_force = at_start
        self._changed = changed
        self._broken = broken
        self._sleep = sleep
        self._seen: str | None = None
        self._needing_restart: list[str] = []

    async def run(self) -> None:
        """Follows the file until it is cancelled."""
        while True:
            self.look()
            await self._sleep(LOOK_EVERY)

    def look(self) -> None:
        """What the file says now is in force, as far as it can be."""
        text = self._text()
        if text == self._seen:
            return
        self._seen = text
        try:
            now = self._load()
        except BadSettings as error:
            _log.warning("the settings file cannot be used: what was read last stays in force", why=str(error))
            self._broken()
            return
        self._take(now)

    def _text(self) -> str:
        try:
            return self._path.read_text(errors="replace")
        except OSError as error:
            return f"\0{error}"

    def _take(self, now: Settings) -> None:
        differing = [name for name in Settings.model_fields if getattr(now, name) != getattr(self._at_start, name)]
        waiting = [name for name in differing if name not in CHANGEABLE]
        if waiting != self._needing_restart:
            self._needing_restart = waiting
            if waiting:
                _log.warning("settings have changed that take effect with the next start", settings=waiting)
        if any(getattr(now, name) != getattr(self._in_force, name) for name in CHANGEABLE):
            self._changed(now)
        self._in_force = now
