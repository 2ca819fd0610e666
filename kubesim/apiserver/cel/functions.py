"""Functions: operators, functions and methods of simple values, with their types.

`programs` has those of lists, maps, objects and optionals, whose types depend on their elements.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kubesim.apiserver.cel.syntax import Refused, not_here
from kubesim.apiserver.cel.types import BOOL, DOUBLE, DYN, INT, NULL, OPAQUE, TEXT, TIMESTAMP, ListOf, Type
from kubesim.apiserver.cel.values import Failed, instant

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class Overload:
    """A method's first parameter is its target."""

    parameters: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]


def _whole(run: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def checked(one: int, other: int) -> int:
        result = run(one, other)
        if not _SMALLEST <= result <= _LARGEST:
            raise Failed("integer overflow")
        return result

    return checked


def _quotient(one: int, other: int) -> int:
    """Rounds towards zero."""
    if other == 0:
        raise Failed("division by zero")
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def _remainder(one: int, other: int) -> int:
    """Has the sign of the dividend."""
    if other == 0:
        raise Failed("modulus by zero")
    return one - other * _quotient(one, other)


def _ratio(one: float, other: float) -> float:
    if other:
        return one / other
    if one == 0 or math.isnan(one) or math.isnan(other):
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1, other)


def _whole_part(value: float) -> int:
    if not math.isfinite(value) or not _SMALLEST < value < _LARGEST:
        raise Failed("integer overflow")
    return int(value)


def _whole_of(text: str) -> int:
    if not _WHOLE.fullmatch(text) or len(text) > 400 or not _SMALLEST <= int(text) <= _LARGEST:
        raise Failed(f"type conversion error from 'string' to 'int': {text!r}")
    return int(text)


@lru_cache(maxsize=1024)
def pattern(text: str) -> Any:
    """The compiled RE2 regular expression. Raises Refused."""
    import re2  # on demand: few definitions have patterns, and the import would slow down every start

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        said = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise Refused(f"error parsing regexp: {said}") from None


def matches(text: str, expression: str) -> bool:
    try:
        return pattern(expression).search(text) is not None
    except Refused as error:
        raise Failed(str(error)) from None


_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_ASCII_UPPER = {lower: upper for upper, lower in _ASCII_LOWER.items()}


def _index_of(text: str, part: str) -> int:
    return text.find(part)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _character(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise Failed(f"index out of range: {at}")
    return text[at : at + 1]


def _part(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= end <= len(text) or start > end:
        raise Failed(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _parts(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _compared(run: Callable[[Any, Any], bool]) -> tuple[Overload, ...]:
    pairs = [(each, each) for each in (BOOL, INT, DOUBLE, TEXT, TIMESTAMP)]
    return tuple(Overload(pair, BOOL, run) for pair in (*pairs, (INT, DOUBLE), (DOUBLE, INT)))


def _numbers(whole: Callable[[int, int], int], real: Callable[[float, float], float]) -> tuple[Overload, ...]:
    return Overload((INT, INT), INT, _whole(whole)), Overload((DOUBLE, DOUBLE), DOUBLE, real)


def _text(run: Callable[..., Any], result: Type, *more: Type) -> tuple[Overload, ...]:
    return (Overload((TEXT, *more), result, run),)


def _itself(value: Any) -> Any:
    return value


FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    "+": (*_numbers(operator.add, operator.add), Overload((TEXT, TEXT), TEXT, operator.add)),
    "-": _numbers(operator.sub, operator.sub),
    "*": _numbers(operator.mul, operator.mul),
    "/": _numbers(_quotient, _ratio),
    "%": (Overload((INT, INT), INT, _whole(_remainder)),),
    "-_": (
        Overload((INT,), INT, lambda value: _whole(operator.sub)(0, value)),
        Overload((DOUBLE,), DOUBLE, operator.neg),
    ),
    "!_": (Overload((BOOL,), BOOL, operator.not_),),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "size": _text(len, INT),
    "matches": _text(matches, BOOL, TEXT),
    "int": (
        Overload((INT,), INT, _itself),
        Overload((DOUBLE,), INT, _whole_part),
        Overload((TEXT,), INT, _whole_of),
    ),
    "double": (Overload((DOUBLE,), DOUBLE, _itself), Overload((INT,), DOUBLE, float)),
    "string": (
        Overload((TEXT,), TEXT, _itself),
        Overload((INT,), TEXT, str),
        Overload((BOOL,), TEXT, lambda value: "true" if value else "false"),
    ),
    "timestamp": _text(instant, TIMESTAMP),
}
METHODS: dict[str, tuple[Overload, ...]] = {
    "size": FUNCTIONS["size"],
    "matches": FUNCTIONS["matches"],
    "startsWith": _text(str.startswith, BOOL, TEXT),
    "endsWith": _text(str.endswith, BOOL, TEXT),
    "contains": _text(operator.contains, BOOL, TEXT),
    "lowerAscii": _text(lambda text: text.translate(_ASCII_LOWER), TEXT),
    "upperAscii": _text(lambda text: text.translate(_ASCII_UPPER), TEXT),
    "indexOf": _text(_index_of, INT, TEXT),
    "lastIndexOf": _text(_last_index_of, INT, TEXT),
    "charAt": _text(_character, TEXT, INT),
    "replace": _text(str.replace, TEXT, TEXT, TEXT),
    "split": _text(_parts, ListOf(TEXT), TEXT),
    "substring": (*_text(_part, TEXT, INT), *_text(_part, TEXT, INT, INT)),
}


def fitting(overloads: tuple[Overload, ...], given: tuple[Type | None, ...]) -> list[Overload]:
    """The overloads that accept values of these types; DYN fits every parameter."""
    return [
        each
        for each in overloads
        if len(each.parameters) == len(given)
        and all(one is DYN or one == wanted for one, wanted in zip(given, each.parameters, strict=True))
    ]


_NOT_HERE_WORDS = """
    add asApproximateFloat asInteger bool bytes cidr compareTo containsCIDR containsIP day distinct duration dyn family
    find findAll first flatten format getDate getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear
    getHost getHostname getHours getMilliseconds getMinutes getMonth getPort getQuery getScheme getSeconds ip isCIDR
    isGreaterThan isIP isInteger isLessThan isQuantity isSemver isSorted isURL join last masked max min named
    ofNonZeroValue prefixLength quantity range reverse semver sign slice sort sortBy sub sum trim type uint url
    validate
"""
_NOT_HERE = frozenset(_NOT_HERE_WORDS.split())
"""Functions of kube-apiserver that are missing here."""


_WRITTEN = (("double", TEXT), ("string", DOUBLE))
"""Conversions that depend on Go's format of fractions."""


def elsewhere(name: str, of_type: Type) -> bool:
    """Whether kube-apiserver may have this function for this type, though it is missing here."""
    return of_type in (TIMESTAMP, OPAQUE, NULL) or (name, of_type) in _WRITTEN


def unknown(name: str) -> Refused:
    return not_here(f"the function {name}") if name in _NOT_HERE else Refused(f"undeclared reference to '{name}'")
