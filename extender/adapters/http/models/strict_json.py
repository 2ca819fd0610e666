"""Strict JSON: reads a body only if every JSON reader would read the same value, else refuses it.

Python takes the last of two equal keys, other readers the first. Half a surrogate pair can be read but not written
again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from extender.adapters.http.problems import Problem, ProblemKind, dotted

_HALF = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Matches what may be half a surrogate pair; after a backslash it may match something harmless."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEARCHED = 10_000
"""Most objects and lists searched for the name of the fault: more would block the event loop."""

MOST_VALUES = 20_000
"""In one body: a wrong value costs 20 microseconds of the event loop, before rights are checked."""

_Path = tuple[str | int, ...]
_Items = list[tuple[str | int, object]]


class Unreadable(HTTPException):
    """An error that FastAPI does not convert when it is raised while a body is read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.status, problem.detail)
        self.problem = problem


class StrictRoute(APIRoute):
    """An endpoint whose JSON is read by `read_json`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        try:
            return read_json(await self.body())
        except Problem as problem:
            raise Unreadable(problem) from None


def read_json(body: bytes) -> Any:
    """Returns the value. Raises Problem, with the path to the faulty key or text in `field`."""
    if body.count(b",") > MOST_VALUES:
        raise Problem(ProblemKind.TOO_LARGE, f"the body has more than {MOST_VALUES} values; send several smaller ones")
    twice: list[tuple[dict[str, Any], str]] = []

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
            twice.append((value, key))
        return value

    try:
        # A byte order mark carries no content, but some editors write one.
        text = body.decode("utf-8-sig")
        value = json.loads(text, object_pairs_hook=made)
    except UnicodeDecodeError as error:
        raise Problem(
            ProblemKind.NOT_JSON, f"the body is not UTF-8: byte {body[error.start]:#x} at {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        raise Problem(ProblemKind.NOT_JSON, f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Problem(ProblemKind.NOT_JSON, "the body is nested too deeply") from None
    except ValueError:
        raise Problem(ProblemKind.NOT_JSON, "a number in the body has too many digits") from None
    if twice:
        keys = {id(each): key for each, key in twice}
        raise _refused(value, "occurs more than once", lambda each, _: keys.get(id(each)))
    # JSON that can be read may be nested too deeply to be written.
    try:
        has_half = _HALF.search(text) is not None and not _can_be_written(value)
    except RecursionError:
        raise Problem(ProblemKind.NOT_JSON, "the body is nested too deeply") from None
    if has_half:
        raise _refused(value, "has half a surrogate pair, which is not a character", _half_in)
    return value


def _can_be_written(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _items(value: object) -> _Items:
    if isinstance(value, dict):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _half_in(_: object, items: _Items) -> str | int | None:
    for key, within in items:
        if (isinstance(key, str) and _SURROGATE.search(key)) or (isinstance(within, str) and _SURROGATE.search(within)):
            return key
    return None


def _refused(value: Any, what: str, wrong: Callable[[object, _Items], str | int | None]) -> Problem:
    """Returns a problem that says `what` of the outermost key that is `wrong` in its container."""
    waiting: list[tuple[_Path, object]] = [((), value)]
    field = ""
    for path, each in waiting:
        items: _Items = list(
            each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        )
        key = wrong(each, items)
        if key is not None:
            field = dotted((*path, key)).encode("ascii", "backslashreplace").decode()
            break
        inner = [((*path, key), within) for key, within in items if isinstance(within, dict | list)]
        waiting += inner[: _SEARCHED - len(waiting)]
    shown = field if len(field) <= 200 else f"{field[:200]}..."
    return Problem(ProblemKind.WRONG_SHAPE, f"{shown or 'the body'} {what}", field=shown or None)
