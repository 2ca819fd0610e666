"""Calling: turns a call that is written once into a blocking method, or an awaited one.

A call is a generator: it yields requests, is sent the bodies of the answers, and returns the result. `Call` turns it
into a method of either client; so the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path`: parts below `/v1`, unquoted. None in params and headers is left out."""

    method: str
    path: Sequence[str]
    params: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


Steps = Generator[Request, bytes, T]


class Blocking(Protocol):
    """A client whose calls return when they are answered."""

    def perform(self, steps: Steps[T]) -> T: ...


class Awaited(Protocol):
    """A client whose calls are awaited."""

    async def perform(self, steps: Steps[T]) -> T: ...


class Call(Generic[P, T]):
    """A method of `Calls`, as the client performs it."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        update_wrapper(self, steps)

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaited, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.perform(self._steps(client, *args, **kwargs))

        return update_wrapper(call, self._steps)

    def __call__(self, client: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
        return client.perform(self._steps(client, *args, **kwargs))
