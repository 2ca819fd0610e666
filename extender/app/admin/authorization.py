"""Authorization: who owns a token, and what the caller may do, as the API server says.

Answers are cached for seconds. What cannot be found out is denied. Rights have a verb, resource, namespace and name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

from extender.core.common.bounded import Bounded

GROUP = "escher.dev"
_TOKENS = 4096
_DECISIONS = 16_384
_LONGEST_NAMESPACE, _LONGEST_NAME = 63, 253
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Caller:
    """The user that the API server reports for a token. An empty name: unknown."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


NOBODY = Caller("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A right that RBAC may give: `verb` on a resource of Escher's group, or on a `path`.

    An empty `namespace` means all namespaces, an empty `name` any object."""

    verb: str
    resource: str = ""
    """`gangs`, or with a subresource: `ephemeralresources/shared`."""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} {self.path}"
        at = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource}.{GROUP}{f' {self.name}' if self.name else ''} {at}"


class Reviews(Protocol):
    """Asks the API server. Both methods raise Unavailable and Refused if it does not answer."""

    async def whose(self, token: str) -> Caller | None:
        """Returns the owner of the token; None: the token is not valid."""
        ...

    async def allows(self, caller: Caller, right: Right) -> bool: ...


class Authorization:
    """`believed`: seconds for which an answer is cached. `now`: a monotonic clock."""

    def __init__(self, reviews: Reviews, now: Callable[[], float], believed: float) -> None:
        self._reviews = reviews
        self._now = now
        # Separate caches: invalid tokens do not drive out valid ones.
        self._callers: _Believed[bytes, Caller] = _Believed(_TOKENS, believed)
        self._unknown_tokens: _Believed[bytes, bool] = _Believed(_TOKENS, believed)
        self._decisions: _Believed[tuple[Caller, Right], bool] = _Believed(_DECISIONS, believed)
        self._under_way: dict[object, asyncio.Task[Any]] = {}

    def known(self, token: str) -> bool:
        """Returns whether `who` has its answer cached."""
        key, now = _hashed(token), self._now()
        return self._callers.get(key, now) is not None or self._unknown_tokens.get(key, now) is not None

    async def who(self, token: str) -> Caller | None:
        """Returns the owner of the token; None: it is not valid. Raises Unavailable, Refused."""
        key = _hashed(token)
        if (caller := self._callers.get(key, self._now())) is not None:
            return caller
        if self._unknown_tokens.get(key, self._now()) is not None:
            return None
        found = await self._once(key, lambda: self._reviews.whose(token))
        if found is None:
            self._unknown_tokens.put(key, True, self._now())
        else:
            self._callers.put(key, found, self._now())
        return found

    async def may(self, caller: Caller, right: Right) -> bool:
        """Returns whether the caller has the right, to the named object or to all of the resource.

        Raises Unavailable, Refused."""
        # No object can have such a name, so it needs the right to all: it is neither asked about nor cached.
        if len(right.namespace) > _LONGEST_NAMESPACE:
            right = replace(right, namespace="", name="")
        elif len(right.name) > _LONGEST_NAME:
            right = replace(right, name="")
        # RBAC has no denials: a right to all includes each name. One cached answer then serves all names.
        if await self._allows(caller, replace(right, name="")):
            return True
        return bool(right.name) and await self._allows(caller, right)

    async def _allows(self, caller: Caller, right: Right) -> bool:
        key = (caller, right)
        if (decided := self._decisions.get(key, self._now())) is not None:
            return decided
        allowed = await self._once(key, lambda: self._reviews.allows(caller, right))
        self._decisions.put(key, allowed, self._now())
        return allowed

    async def _once(self, key: object, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Returns the answer to the question, which is asked once for all waiting callers."""
        asking: asyncio.Task[_T] | None = self._under_way.get(key)
        if asking is None:
            asking = self._under_way[key] = asyncio.create_task(ask())
            asking.add_done_callback(lambda done: self._over(key, done))
        # A caller that is cancelled does not cancel the question of the others.
        return await asyncio.shield(asking)

    def _over(self, key: object, done: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            # Waiting callers have the error already, or no caller is left.
            done.exception()


def _hashed(token: str) -> bytes:
    """Returns what is cached of a token: its hash, which cannot be used as a token."""
    return sha256(token.encode()).digest()


class _Believed(Generic[_K, _T]):
    """The last `limit` answers, each for `seconds`."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._answers: Bounded[_K, tuple[_T, float]] = Bounded(limit)
        self._seconds = seconds

    def get(self, key: _K, now: float) -> _T | None:
        found = self._answers.get(key)
        return found[0] if found is not None and now < found[1] else None

    def put(self, key: _K, answer: _T, now: float) -> None:
        self._answers[key] = answer, now + self._seconds
