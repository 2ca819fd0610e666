"""Session: asks one after the other, and their answers in normal form. Knows nothing of whom it asks, nor how."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from tests.conformance.recorded.asks import Ask
from tests.conformance.recorded.normal import Placeholders

FILE = Path(__file__).with_name("session.jsonl")

Send = Callable[[str, str, dict[str, str], bytes], tuple[int, bytes]]
"""Method, escaped path with query, headers, body; status and body of the answer."""

_NAMED = re.compile(r"\{([\w/-]+):([\w.]+)\}")


class Exchange(msgspec.Struct, frozen=True):
    """An ask and its answer."""

    ask: Ask
    status: int
    answer: Any


class Session:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._answers: dict[str, Any] = {}
        self._placeholders = Placeholders()

    def exchange(self, ask: Ask) -> Exchange:
        """The ask has been sent; its answer."""
        path = self._filled(ask.path, escaped=True).replace(" ", "%20")
        headers, content = {"accept": ask.accept}, self._content(ask)
        if content is not None:
            headers["content-type"] = ask.content_type
        status, said = self._send(ask.method, path, headers, content or b"")
        self._answers[ask.id] = answer = _parsed(said)
        return Exchange(ask, status, self._placeholders.normal(answer, ask.id, generated=_generate_name(ask)))

    def _content(self, ask: Ask) -> bytes | None:
        if ask.text is not None:
            return ask.text.encode()
        if ask.base:
            return json.dumps(_merged(self._answers[ask.base], self._resolved(ask.body))).encode()
        return None if ask.body is None else json.dumps(self._resolved(ask.body)).encode()

    def _resolved(self, body: Any) -> Any:
        if isinstance(body, dict):
            return {key: self._resolved(value) for key, value in body.items()}
        if isinstance(body, list):
            return [self._resolved(each) for each in body]
        return self._filled(body, escaped=False) if isinstance(body, str) else body

    def _filled(self, text: str, *, escaped: bool) -> str:
        def value(found: re.Match[str]) -> str:
            at = self._answers[found[1]]
            for key in found[2].split("."):
                at = at[key]
            return quote(str(at), safe="") if escaped else str(at)

        return _NAMED.sub(value, text)


def read(file: Path = FILE) -> list[Exchange]:
    return [msgspec.json.decode(line, type=Exchange) for line in file.read_bytes().splitlines()]


def write(exchanges: Iterable[Exchange], file: Path = FILE) -> None:
    file.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in exchanges))


def _parsed(said: bytes) -> Any:
    if said.startswith(b"k8s\0"):
        return "<protobuf>"
    try:
        return json.loads(said)
    except ValueError:
        return said.decode(errors="replace")


def _generate_name(ask: Ask) -> str:
    metadata = ask.body.get("metadata") if isinstance(ask.body, dict) else None
    return str(metadata.get("generateName", "")) if isinstance(metadata, dict) else ""


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
