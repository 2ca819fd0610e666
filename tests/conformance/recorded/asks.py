"""Asks: requests as data, so that they can be sent to any API server and be written into a file.

What only an earlier answer tells (a uid, a resource version, a continue token) is named instead: in a path or a text of
the body, `{lists/page:metadata.continue}` is the value at that place of the answer to the ask `lists/page`.
"""

from __future__ import annotations

from typing import Any

import msgspec

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"


class Ask(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One request. It has a body if `body`, `text` or `base` is given."""

    id: str = ""
    """Told by the subject and the place in its list, unless it is named."""
    method: str
    path: str
    """With the query, readable: it is escaped when it is sent."""
    body: Any = None
    text: str | None = None
    """A body that is not JSON, or no good JSON."""
    base: str = ""
    """The id of an earlier ask: its answer is sent back, with `body` merged into it (RFC 7386)."""
    content_type: str = JSON
    accept: str = JSON
    pause: float = 0.0
    """Seconds until the next ask: the real one heeds some writes only a moment later."""


def _ask(method: str, path: str, body: Any = None, **more: Any) -> Ask:
    if isinstance(body, bytes):
        return Ask(method=method, path=path, text=body.decode(), **more)
    return Ask(method=method, path=path, body=body, **more)


def get(path: str, **more: Any) -> Ask:
    return _ask("GET", path, **more)


def post(path: str, body: Any, **more: Any) -> Ask:
    return _ask("POST", path, body, **more)


def put(path: str, body: Any, **more: Any) -> Ask:
    return _ask("PUT", path, body, **more)


def delete(path: str, body: Any = None, **more: Any) -> Ask:
    return _ask("DELETE", path, body, **more)


def merge(path: str, body: Any, **more: Any) -> Ask:
    return _ask("PATCH", path, body, content_type=MERGE, **more)


def strategic(path: str, body: Any, **more: Any) -> Ask:
    return _ask("PATCH", path, body, content_type=STRATEGIC, **more)


def json_patch(path: str, body: Any, **more: Any) -> Ask:
    return _ask("PATCH", path, body, content_type=JSON_PATCH, **more)


def apply(path: str, body: Any, **more: Any) -> Ask:
    return _ask("PATCH", path, body, content_type=APPLY, **more)


def numbered(subject: str, asks: list[Ask]) -> list[Ask]:
    """Each with an id: `subject/name`, or `subject/number` without a name. Bases are named within the subject."""
    return [
        msgspec.structs.replace(each, id=f"{subject}/{each.id or index}", base=each.base and f"{subject}/{each.base}")
        for index, each in enumerate(asks, start=1)
    ]
