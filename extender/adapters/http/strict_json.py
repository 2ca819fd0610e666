"""Strict JSON: a body as everybody reads it, or refused. Must not know what a body means.

Python takes the last of two equal keys, others the first; and half a surrogate pair can be read, and then written by
nobody. So neither goes any further.
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
"""What may be half a pair; or, after a backslash, nothing of the kind."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_SEARCHED = 10_000
"""Objects and lists that are looked through for the name of what is wrong: more would hold up everybody."""

MOST_VALUES = 20_000
"""In a body: each that is wrong costs 20 us of everybody's time, before anything is known of rights."""

_Path = tuple[str | int, ...]
_Items = list[tuple[str | int, object]]


class Unreadable(HTTPException):
    """What FastAPI lets through when a body is read."""

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
    """The value. Raises Problem, with the path to the key or text that cannot be as its field."""
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
        # A byte order mark is nobody's content, and some editors' habit.
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
        raise _refused(value, "is there more than once", lambda each, _: keys.get(id(each)))
    # What can be read may be nested too deeply to be written.
    try:
        has_half = _HALF.search(text) is not None and not _can_be_written(value)
    except RecursionError:
        raise Problem(ProblemKind.NOT_JSON, "the body is nested too deeply") from None
    if has_half:
        raise _refused(value, "has half a surrogate pair, which is no character", _half_in)
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
    """`what` is said of the first key, from the outermost, that is `wrong` in its object or list."""
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
