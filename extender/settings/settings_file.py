"""Settings file: follows the file at run time, and applies the settings that can change.

It warns of changes that need a restart. It compares the text every few seconds. A ConfigMap's file is a link that
is replaced, editors do the same, and file times show neither. An unusable file changes nothing and is logged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from extender.settings.settings import CHANGEABLE, BadSettings, Settings

_log = structlog.get_logger(__name__)

LOOK_EVERY = 3.0
"""Seconds."""


class SettingsFile:
    """`load` reads the file and its overrides, as at the start; raises BadSettings.

    `changed` gets new settings if a CHANGEABLE one differs. `broken` is called once per unusable text.
    """

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
        """Follows the file until cancelled."""
        while True:
            self.look()
            await self._sleep(LOOK_EVERY)

    def look(self) -> None:
        """Applies the file's text if it has changed, as far as possible at run time."""
        text = self._text()
        if text == self._seen:
            return
        self._seen = text
        try:
            now = self._load()
        except BadSettings as error:
            _log.warning("the settings file cannot be used: the last valid settings stay in force", why=str(error))
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
                _log.warning("changed settings take effect after a restart", settings=waiting)
        if any(getattr(now, name) != getattr(self._in_force, name) for name in CHANGEABLE):
            self._changed(now)
        self._in_force = now
