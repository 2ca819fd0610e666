"""Draw: draws from a seed what goes wrong with which request and which event of a watch.

A draw depends on the seed, on the request, and on its count so far; not on what else happens at the same time. So the
same seed does the same to the third Binding of the same pod in every run, in whatever order the requests come. This
module only decides; `proxy` acts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

RequestKind = Literal[
    "delay-request",
    "delay-answer",
    "lose-request",
    "lose-answer",
    "cut-answer",
    "late",
    "twice",
    "429",
    "500",
    "503",
    "504",
]
EventKind = Literal["hold-event", "repeat-event", "end-watch", "cut-watch", "expire-watch"]
Kind = RequestKind | EventKind

REQUEST_KINDS: tuple[RequestKind, ...] = get_args(RequestKind)
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)
KINDS: tuple[Kind, ...] = (*REQUEST_KINDS, *EVENT_KINDS)

IN_WORDS: Mapping[Kind, str] = {
    "delay-request": "requests delayed",
    "delay-answer": "answers delayed",
    "lose-request": "requests lost",
    "lose-answer": "answers lost after the work was done",
    "cut-answer": "answers cut in the middle",
    "late": "connections cut, the request done later",
    "twice": "requests sent twice",
    "429": "answered 429 with Retry-After",
    "500": "answered 500",
    "503": "answered 503",
    "504": "answered 504",
    "hold-event": "watch events held back",
    "repeat-event": "watch events sent twice",
    "end-watch": "watches ended",
    "cut-watch": "watches cut in an event",
    "expire-watch": "watches told 410",
}

USUAL: Mapping[Kind, float] = {
    "delay-request": 0.06,
    "delay-answer": 0.06,
    "lose-request": 0.05,
    "lose-answer": 0.06,
    "cut-answer": 0.04,
    "late": 0.03,
    "twice": 0.05,
    "429": 0.02,
    "500": 0.02,
    "503": 0.02,
    "504": 0.02,
    "hold-event": 0.02,
    "repeat-event": 0.05,
    "end-watch": 0.01,
    "cut-watch": 0.01,
    "expire-watch": 0.005,
}
"""The share of requests, or of watch events, that each kind meets, as a mean of many seeds."""

_MOST_OF_REQUESTS = 0.8
_MOST_OF_EVENTS = 0.5
_PASSES_AFTER = 3
"""After this many hindered attempts at the same thing in a row, one passes, to get it done."""
_WAIT = (0.01, 0.6)
"""Seconds of a delay; its logarithm is evenly distributed."""
_LONG_WAIT = (0.5, 3.0)
"""Seconds for which events are held back, or requests are late."""
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
_NOT_OF_READS: tuple[Kind, ...] = ("twice", "late")
"""A read that is repeated, or that comes too late, changes nothing."""
_NOT_OF_WATCHES: tuple[Kind, ...] = ("lose-answer", "cut-answer")


@dataclass(frozen=True)
class Fault:
    """`seconds`: of waiting. `share`: of the body that passes. `abrupt`: without a goodbye."""

    kind: Kind | Literal["none"]
    seconds: float = 0.0
    share: float = 0.0
    abrupt: bool = False


NONE = Fault("none")


class BadRates(ValueError):
    """Rates that cannot be used; `str()` says why."""


def checked(changed: Mapping[str, float]) -> dict[Kind, float]:
    """The usual rates, with these changed. Raises BadRates."""
    unknown = sorted(changed.keys() - set(KINDS))
    if unknown:
        raise BadRates(f"there is no fault {unknown[0]!r}; there are {', '.join(KINDS)}")
    rates = {kind: float(changed.get(kind, usual)) for kind, usual in USUAL.items()}
    for kind, rate in rates.items():
        if not 0 <= rate <= 1:
            raise BadRates(f"{kind}={rate:g} is no rate: give a number from 0 to 1")
    for what, kinds, most in (("requests", REQUEST_KINDS, _MOST_OF_REQUESTS), ("events", EVENT_KINDS, _MOST_OF_EVENTS)):
        total = sum(rates[kind] for kind in kinds)
        if total > most:
            raise BadRates(f"{total:g} of all {what} would go wrong; at most {most:g} may, so that some go through")
    return rates


def rates_of_run(seed: int, rates: Mapping[Kind, float]) -> dict[Kind, float]:
    """The rates of one run: some kinds are left out, some are twice as frequent, for variety."""
    rng = random.Random(f"rates {seed}")
    drawn = {kind: rate * rng.choice((0, 1, 2)) for kind, rate in rates.items()}
    for kinds, most in ((REQUEST_KINDS, _MOST_OF_REQUESTS), (EVENT_KINDS, _MOST_OF_EVENTS)):
        total = sum(drawn[kind] for kind in kinds)
        for kind in kinds:
            drawn[kind] *= min(1.0, most / total) if total else 1.0
    return drawn


class Deciding(Protocol):
    """Decides what goes wrong with a request, and with an event of a watch on `path`."""

    def of_request(self, method: str, path: str, *, watch: bool = False) -> Fault: ...

    def of_event(self, path: str, type_: str, name: str) -> Fault: ...


class Faults:
    """The faults of one run. Not safe to use from several threads."""

    def __init__(self, seed: int, rates: Mapping[Kind, float]) -> None:
        self.drawn: Counter[Kind] = Counter()
        self.hit: list[tuple[Kind, str]] = []
        """What was drawn, and what it met, in the order of events."""
        self._seed = seed
        self._rates = rates
        self._asked: Counter[str] = Counter()
        self._hindered: Counter[str] = Counter()

    def of_request(self, method: str, path: str, *, watch: bool = False) -> Fault:
        """What goes wrong with this request. `path`: without its query."""
        # A watch has no end to wait for; its events have draws of their own.
        without = _NOT_OF_WATCHES if watch else ()
        if method not in _WRITES:
            without += _NOT_OF_READS
        kinds = [kind for kind in REQUEST_KINDS if kind not in without]
        return self._draw(f"{method} {path}{' (watch)' if watch else ''}", kinds)

    def of_event(self, path: str, type_: str, name: str) -> Fault:
        """What goes wrong with this event of a watch on `path`."""
        return self._draw(f"{type_} {path} {name}", EVENT_KINDS)

    def _draw(self, what: str, kinds: Sequence[Kind]) -> Fault:
        self._asked[what] += 1
        rng = random.Random(f"{self._seed} {what} {self._asked[what]}")
        pick = rng.random()
        for kind in kinds:
            pick -= self._rates[kind]
            if pick < 0:
                break
        else:
            self._hindered[what] = 0
            return NONE
        if self._hindered[what] >= _PASSES_AFTER:
            self._hindered[what] = 0
            return NONE
        self._hindered[what] += 1
        self.drawn[kind] += 1
        self.hit.append((kind, what))
        shortest, longest = _LONG_WAIT if kind in ("late", "hold-event") else _WAIT
        seconds = shortest * (longest / shortest) ** rng.random()
        return Fault(kind, seconds=seconds, share=rng.random(), abrupt=rng.random() < 0.5)


def cut(body: bytes, share: float) -> bytes:
    """The first part of a body: never all of it, and nothing of a body of one byte."""
    return body[: min(int(len(body) * share), len(body) - 1)] if body else b""
