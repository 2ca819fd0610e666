"""CEL: the part of the expression language that validation rules of custom resources are written in.

Literals, fields, indexes, `has`, `size`, text and list functions, `all`/`exists`, optionals, and the operators from
`?:` down. What it does not know is an Unsupported rule, which whoever installs a CRD is told. Must not know schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Scope = Mapping[str, Any]
Expression = Callable[[Scope], Any]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}]))"""
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(_kind(one) == _kind(other) and one == other),
    "!=": lambda one, other: not (_kind(one) == _kind(other) and one == other),
    "<=": lambda one, other: bool(one <= other),
    ">=": lambda one, other: bool(one >= other),
    "<": lambda one, other: bool(one < other),
    ">": lambda one, other: bool(one > other),
}


class Unsupported(ValueError):
    """The expression uses what is not known here; `str()` says what."""


class Failed(Exception):
    """The expression has no value, as where it names a field that is not there."""


class Optional:
    """A value that may be missing."""

    def __init__(self, value: Any = None, *, there: bool = False) -> None:
        self.value, self.there = value, there


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """The expression, ready for evaluation. Raises Unsupported."""
    parser = _Parser(text)
    expression = parser.ternary()
    parser.end()
    return expression


@lru_cache(maxsize=1024)
def mentions(text: str, name: str) -> bool:
    """Whether the expression uses the variable."""
    return re.search(rf"\b{name}\b", text) is not None


def _kind(value: Any) -> type:
    """What may be equal at all: numbers are one kind, bool is another."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position, text = 0, text.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise Unsupported(f"at {text[position:]!r}")
            self._tokens.append((match.lastgroup or "", match.group(match.lastgroup or "")))
            position = match.end()
        self._at = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise Unsupported(f"at {self._tokens[self._at][1]!r}")

    def ternary(self) -> Expression:
        condition = self._either()
        if not self._take("?"):
            return condition
        then = self.ternary()
        self._expect(":")
        otherwise = self.ternary()
        return lambda scope: then(scope) if condition(scope) else otherwise(scope)

    def _either(self) -> Expression:
        left = self._both()
        while self._take("||"):
            left = _or(left, self._both())
        return left

    def _both(self) -> Expression:
        left = self._comparison()
        while self._take("&&"):
            left = _and(left, self._comparison())
        return left

    def _comparison(self) -> Expression:
        left = self._sum()
        while True:
            sign = self._peek()
            if sign == "in" or sign in _COMPARISONS:
                self._at += 1
                left = _compared(sign, left, self._sum())
            else:
                return left

    def _sum(self) -> Expression:
        left = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self._at += 1
            left = _calculated(sign, left, self._product())
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while (sign := self._peek()) in ("*", "/", "%"):
            self._at += 1
            left = _calculated(sign, left, self._unary())
        return left

    def _unary(self) -> Expression:
        if self._take("!"):
            inner = self._unary()
            return lambda scope: not inner(scope)
        if self._take("-"):
            inner = self._unary()
            return lambda scope: -inner(scope)
        return self._member()

    def _member(self) -> Expression:
        value = self._primary()
        while True:
            if self._take("."):
                name = self._name()
                value = self._called(value, name) if self._take("(") else _field(value, name)
            elif self._take("["):
                value = _indexed(value, self.ternary())
                self._expect("]")
            else:
                return value

    def _primary(self) -> Expression:
        if self._at >= len(self._tokens):
            raise Unsupported("the expression ends too early")
        kind, token = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number: float = float(token) if "." in token else int(token)
            return lambda scope: number
        if kind == "text":
            text = re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t"}.get(match[1], match[1]), token[1:-1])
            return lambda scope: text
        if token == "(":
            inner = self.ternary()
            self._expect(")")
            return inner
        if token == "[":
            items = self._arguments("]")
            return lambda scope: [item(scope) for item in items]
        if kind != "name":
            raise Unsupported(f"at {token!r}")
        if token in ("true", "false", "null"):
            constant = {"true": True, "false": False, "null": None}[token]
            return lambda scope: constant
        if self._take("("):
            return self._function(token)
        return _variable(token)

    def _function(self, name: str) -> Expression:
        if name == "has":
            start = self._at
            self._arguments(")")
            *parents, last = [token for kind, token in self._tokens[start : self._at - 1] if kind == "name"]
            return _has(parents, last)
        arguments = self._arguments(")")
        functions: dict[str, Callable[[Any], Any]] = {"size": len, "string": str, "int": int, "double": float}
        if name not in functions or len(arguments) != 1:
            raise Unsupported(f"the function {name}")
        function, argument = functions[name], arguments[0]
        return lambda scope: function(argument(scope))

    def _called(self, target: Expression, name: str) -> Expression:
        if name in ("all", "exists", "exists_one", "filter", "map"):
            variable = self._name()
            self._expect(",")
            body = self.ternary()
            self._expect(")")
            return _macro(name, target, variable, body)
        method = _METHODS.get(name)
        if method is None:
            raise Unsupported(f"the function {name}")
        arguments = self._arguments(")")
        return lambda scope: method(target(scope), *(argument(scope) for argument in arguments))

    def _arguments(self, closing: str) -> list[Expression]:
        found: list[Expression] = []
        if self._take(closing):
            return found
        while True:
            found.append(self.ternary())
            if self._take(closing):
                return found
            self._expect(",")

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        if self._peek() == token and self._tokens[self._at][0] != "text":
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise Unsupported(f"at {self._peek()!r}, expected {token!r}")

    def _name(self) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at][0] != "name":
            raise Unsupported(f"at {self._peek()!r}, expected a name")
        self._at += 1
        return self._tokens[self._at - 1][1]


def _or(left: Expression, right: Expression) -> Expression:
    return lambda scope: bool(left(scope)) or bool(right(scope))


def _and(left: Expression, right: Expression) -> Expression:
    return lambda scope: bool(left(scope)) and bool(right(scope))


def _compared(sign: str, left: Expression, right: Expression) -> Expression:
    if sign == "in":
        return lambda scope: left(scope) in right(scope)
    compare = _COMPARISONS[sign]
    return lambda scope: compare(left(scope), right(scope))


def _calculated(sign: str, left: Expression, right: Expression) -> Expression:
    operations: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda one, other: one + other,
        "-": lambda one, other: one - other,
        "*": lambda one, other: one * other,
        "/": lambda one, other: one // other if isinstance(one, int) else one / other,
        "%": lambda one, other: one % other,
    }
    operation = operations[sign]
    return lambda scope: operation(left(scope), right(scope))


def _variable(name: str) -> Expression:
    def read(scope: Scope) -> Any:
        if name not in scope:
            raise Failed(f"undeclared reference to '{name}'")
        return scope[name]

    return read


def _field(target: Expression, name: str) -> Expression:
    def read(scope: Scope) -> Any:
        value = target(scope)
        if not isinstance(value, Mapping) or name not in value:
            raise Failed(f"no such key: {name}")
        return value[name]

    return read


def _has(parents: list[str], last: str) -> Expression:
    def read(scope: Scope) -> bool:
        value: Any = scope
        for name in parents:
            if not isinstance(value, Mapping) or name not in value:
                raise Failed(f"no such key: {name}")
            value = value[name]
        return isinstance(value, Mapping) and last in value

    return read


def _indexed(target: Expression, index: Expression) -> Expression:
    def read(scope: Scope) -> Any:
        try:
            return target(scope)[index(scope)]
        except (KeyError, IndexError, TypeError) as error:
            raise Failed(f"no such key: {error}") from None

    return read


def _macro(name: str, target: Expression, variable: str, body: Expression) -> Expression:
    def read(scope: Scope) -> Any:
        items = target(scope)
        results = [(item, body({**scope, variable: item})) for item in items]
        match name:
            case "all":
                return all(result for _, result in results)
            case "exists":
                return any(result for _, result in results)
            case "exists_one":
                return sum(bool(result) for _, result in results) == 1
            case "filter":
                return [item for item, result in results if result]
        return [result for _, result in results]

    return read


def _value_of(optional: Any) -> Any:
    if not optional.there:
        raise Failed("optional.none() dereference")
    return optional.value


_METHODS: dict[str, Callable[..., Any]] = {
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "contains": lambda text, part: part in text,
    "size": len,
    "hasValue": lambda optional: optional.there,
    "value": _value_of,
    "orValue": lambda optional, other: optional.value if optional.there else other,
}
