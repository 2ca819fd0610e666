"""Authority: who shows a token, and what they may do, as the API server says; each answer is believed for seconds.

What cannot be found out is never allowed. Knows Kubernetes' words for what is done (verb, resource, namespace, name).
Must not know HTTP, nor how the API server is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

from extender.core.bounded import Bounded

GROUP = "escher.dev"
_TOKENS = 4096
_DECISIONS = 16_384
_LONGEST_NAMESPACE, _LONGEST_NAME = 63, 253
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom the API server takes the owner of a token for. An empty name: nobody knows."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


NOBODY = Caller("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What RBAC gives or does not: to do `verb` to a resource of our group, in a namespace ("": in all), to the one of
    a name ("": to any); or, with a `path`, to that."""

    verb: str
    resource: str = ""
    """`gangs`, or with what of it: `ephemeralresources/shared`."""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"{self.verb} {self.path}"
        at = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {self.resource}.{GROUP}{f' {self.name}' if self.name else ''} {at}"


class Reviews(Protocol):
    """The API server, asked. Both raise Unavailable and Refused where it does not say."""

    async def whose(self, token: str) -> Caller | None:
        """Whose token it is; None: it is good for nobody."""
        ...

    async def allows(self, caller: Caller, right: Right) -> bool: ...


class Authorization:
    """`believed`: for so many seconds what the API server has said holds. `now`: passes, and is never set back."""

    def __init__(self, reviews: Reviews, now: Callable[[], float], believed: float) -> None:
        self._reviews = reviews
        self._now = now
        # Tokens that are nobody's do not drive out those that are somebody's.
        self._callers: _Believed[bytes, Caller] = _Believed(_TOKENS, believed)
        self._unknown_tokens: _Believed[bytes, bool] = _Believed(_TOKENS, believed)
        self._decisions: _Believed[tuple[Caller, Right], bool] = _Believed(_DECISIONS, believed)
        self._under_way: dict[object, asyncio.Task[Any]] = {}

    def known(self, token: str) -> bool:
        """Whether `who` has its answer without asking."""
        key, now = _hashed(token), self._now()
        return self._callers.get(key, now) is not None or self._unknown_tokens.get(key, now) is not None

    async def who(self, token: str) -> Caller | None:
        """Whose token it is; None: it is good for nobody. Raises Unavailable, Refused."""
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
        """Whether the caller has the right: to all of that resource there, or to the one of that name. Raises
        Unavailable, Refused."""
        # What nothing can be called needs the right to all: it is neither asked about nor remembered.
        if len(right.namespace) > _LONGEST_NAMESPACE:
            right = replace(right, namespace="", name="")
        elif len(right.name) > _LONGEST_NAME:
            right = replace(right, name="")
        # RBAC forbids nothing, so whoever may do it to all may do it to each; and that is one answer for all names.
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
        """The answer to the question, which is asked once for all who wait for it."""
        asking: asyncio.Task[_T] | None = self._under_way.get(key)
        if asking is None:
            asking = self._under_way[key] = asyncio.create_task(ask())
            asking.add_done_callback(lambda done: self._over(key, done))
        # One who leaves does not take the answer from the others.
        return await asyncio.shield(asking)

    def _over(self, key: object, done: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not done.cancelled():
            # Whoever waited has it; there may be nobody left.
            done.exception()


def _hashed(token: str) -> bytes:
    """What is remembered of a token: nobody who reads this memory can use it."""
    return sha256(token.encode()).digest()


class _Believed(Generic[_K, _T]):
    """Answers, each for so long; the last `limit` of them."""

    def __init__(self, limit: int, seconds: float) -> None:
        self._answers: Bounded[_K, tuple[_T, float]] = Bounded(limit)
        self._seconds = seconds

    def get(self, key: _K, now: float) -> _T | None:
        found = self._answers.get(key)
        return found[0] if found is not None and now < found[1] else None

    def put(self, key: _K, answer: _T, now: float) -> None:
        self._answers[key] = answer, now + self._seconds
