"""Own loop: runs coroutines in a separate event loop and thread, so that they wait for no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class OwnLoop:
    """Runs from its creation until `close`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of `work` from the own loop. Cancelling this cancels `work`."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """Stops the loop. Unfinished work is abandoned where it is."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
