"""History: a digest of what one run wrote, asked and decided, in order, with times.

It leaves words out: a text with a space in it counts as empty. Two versions of the code that differ only in names and
messages have the same digest for the same plan. Two versions that decide differently do not.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import msgspec

from kubesim.apiserver.machinery.store import Change
from kubesim.kinds import EVENT, EVENTS, Json
from loadtests.fault_simulation.stage import SERVICES, Stage

_encode = msgspec.json.Encoder(order="deterministic").encode


class History:
    """Follows a stage from its construction on."""

    def __init__(self, stage: Stage) -> None:
        self._digest = hashlib.sha256()
        stage.cluster.api.store.subscribe(self._written)
        stage.cluster.api.audit.subscribe(self._asked)
        stage.calls.answered.append(self._decided)

    def digest(self) -> str:
        return self._digest.hexdigest()

    def _written(self, change: Change) -> None:
        if change.kind in (EVENT, EVENTS):
            # Its content is words, and so is its name: a hash of them. Its version shows that it was written.
            self._note(change.type, change.kind.plural, change.version)
        else:
            said = without_words(change.object)
            self._note(change.type, change.kind.plural, change.key, change.version, said)

    def _asked(self, event: Json) -> None:
        if event["user"]["username"] in SERVICES:
            about, code = event["objectRef"], event["responseStatus"]["code"]
            name = None if about["resource"] == EVENTS.plural else about.get("name")
            self._note(event["verb"], about["resource"], about.get("namespace"), name, code)

    def _decided(self, verb: str, answer: bytes) -> None:
        self._note(verb, without_words(msgspec.json.decode(answer)))

    def _note(self, *what: object) -> None:
        self._digest.update(_encode([round(asyncio.get_running_loop().time(), 6), *what]))


def without_words(value: Any) -> Any:
    """The same JSON value, in which each text with a space in it is empty."""
    if isinstance(value, dict):
        return {key: without_words(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_words(each) for each in value]
    return "" if isinstance(value, str) and " " in value else value
