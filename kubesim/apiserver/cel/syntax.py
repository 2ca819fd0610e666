"""Syntax: parses the text of an expression into a tree, by CEL's grammar.

It has no types or functions. Valid syntax that is not supported here, such as unsigned numbers and bytes, is refused by
name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_LARGEST = 2**63 - 1
_DEEPEST = 30
"""The most open brackets. Each takes some frames of Python's stack."""
_LONGEST = 100_000

_TOKEN = re.compile(
    r"""(?P<space>(?:[\t\n\f\r ]|//[^\n]*)+)
    |(?P<bytes>[bB][rR]?["']|[rR][bB]["'])
    |(?P<raw>[rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*'))
    |(?P<text>\"{3}(?:[^\\]|\\[\s\S])*?\"{3}|'{3}(?:[^\\]|\\[\s\S])*?'{3}
        |"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<integer>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]?))""")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ITSELF = "\\?\"'`"
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_RESERVED_WORDS = """
    as break const continue else for function if import in let loop package namespace return var void while
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


class Refused(ValueError):
    """The expression is wrong, or uses an unsupported feature; `str()` names the reason."""


def not_here(what: str) -> Refused:
    """The error for valid CEL that only a real API server supports."""
    return Refused(f'{what}: not in the embedded cluster; "--real" has it')


@dataclass(frozen=True)
class Literal:
    value: str | int | float | bool | None


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Select:
    """`target.name`, or `target.?name`."""

    target: Tree
    name: str
    optional: bool = False


@dataclass(frozen=True)
class Index:
    """`target[at]`, or `target[?at]`."""

    target: Tree
    at: Tree
    optional: bool = False


@dataclass(frozen=True)
class Call:
    """`name(arguments)`, or `target.name(arguments)`; an operator, also `?:`, has no target."""

    name: str
    target: Tree | None
    arguments: tuple[Tree, ...]


@dataclass(frozen=True)
class Items:
    """A list literal."""

    items: tuple[Tree, ...]


@dataclass(frozen=True)
class Entry:
    """`key: value` of a map or `field: value` of a message; `optional`: with `?`, may be empty."""

    key: Tree
    value: Tree
    optional: bool = False


@dataclass(frozen=True)
class Entries:
    """A map literal."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Message:
    """A message literal. The keys of its entries are Names."""

    name: str
    entries: tuple[Entry, ...]


Tree = Literal | Name | Select | Index | Call | Items | Entries | Message


def parsed(text: str) -> Tree:
    """The tree of the text. Raises Refused."""
    if len(text) > _LONGEST:
        raise Refused(f"it is longer than {_LONGEST} characters")
    parser = _Parser(text)
    tree = parser.expression()
    parser.end()
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Refused(f"Syntax error: token recognition error at {text[position : position + 20]!r}")
        kind, token = match.lastgroup or "", match.group()
        if kind == "bytes":
            raise not_here(f"bytes, at {text[position : position + 20]!r}")
        position = match.end()
        if kind == "integer" and text[position : position + 1] in ("u", "U"):
            raise not_here(f"unsigned numbers, at '{token}u'")
        if kind in ("integer", "double") and re.match(r"\w", text[position:]):
            raise Refused(f"Syntax error at {text[position - len(token) : position + 10]!r}")
        if kind != "space":
            found.append((kind, token))
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise Refused(f"Syntax error: extraneous input {self._tokens[self._at][1]!r}")

    def expression(self) -> Tree:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise not_here(f"more than {_DEEPEST} brackets within each other")
        condition = self._either()
        if self._take("?"):
            then = self._either()
            self._expect(":")
            condition = Call("?:", None, (condition, then, self.expression()))
        self._depth -= 1
        return condition

    def _either(self) -> Tree:
        parts = [self._both()]
        while self._take("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Call("||", None, tuple(parts))

    def _both(self) -> Tree:
        parts = [self._relation()]
        while self._take("&&"):
            parts.append(self._relation())
        return parts[0] if len(parts) == 1 else Call("&&", None, tuple(parts))

    def _relation(self) -> Tree:
        left = self._sum()
        while sign := self._take("==", "!=", "<=", ">=", "<", ">", "in"):
            left = Call(sign, None, (left, self._sum()))
        return left

    def _sum(self) -> Tree:
        left = self._product()
        while sign := self._take("+", "-"):
            left = Call(sign, None, (left, self._product()))
        return left

    def _product(self) -> Tree:
        left = self._unary()
        while sign := self._take("*", "/", "%"):
            left = Call(sign, None, (left, self._unary()))
        return left

    def _unary(self) -> Tree:
        """Equal signs in a row; an even number has no effect."""
        for sign in ("!", "-"):
            count = 0
            while self._peek() == ("sign", sign):
                self._at += 1
                count += 1
            if count:
                number = self._negative_number() if sign == "-" and count == 1 else None
                inner = number or self._member()
                return inner if number is not None or count % 2 == 0 else Call(f"{sign}_", None, (inner,))
        return self._member()

    def _negative_number(self) -> Tree | None:
        """Reads the minus as part of the number, so that the smallest integer is valid."""
        kind, token = self._peek()
        if kind == "integer":
            self._at += 1
            return self._members(Literal(_integer(token, negative=True)))
        if kind == "double":
            self._at += 1
            return self._members(Literal(-float(token)))
        return None

    def _member(self) -> Tree:
        return self._members(self._primary())

    def _members(self, tree: Tree) -> Tree:
        while True:
            if self._take("."):
                optional = self._take("?") is not None
                name = self._name(selected=True)
                if not optional and self._take("("):
                    tree = Call(name, tree, self._list(")"))
                else:
                    tree = Select(tree, name, optional)
            elif self._take("["):
                optional = self._take("?") is not None
                tree = Index(tree, self.expression(), optional)
                self._expect("]")
            elif self._peek() == ("sign", "{") and (named := _dotted(tree)):
                self._at += 1
                tree = Message(named, self._entries(lambda: Name(self._name(selected=True))))
            else:
                return tree

    def _primary(self) -> Tree:
        kind, token = self._peek()
        self._at += 1
        if kind == "integer":
            return Literal(_integer(token))
        if kind == "double":
            return Literal(float(token))
        if kind in ("text", "raw"):
            return Literal(_text(token))
        if token == "(" and kind == "sign":
            inner = self.expression()
            self._expect(")")
            return inner
        if token == "[" and kind == "sign":
            return Items(self._list("]"))
        if token == "{" and kind == "sign":
            return Entries(self._entries(self.expression))
        if token == "." and kind == "sign":
            raise not_here("names that begin with a dot")
        if kind != "name":
            raise Refused(f"Syntax error: mismatched input {token or 'the end'!r}")
        if token in _CONSTANTS:
            return Literal(_CONSTANTS[token])
        if token in _RESERVED:
            raise Refused(f"reserved identifier: {token}")
        return Call(token, None, self._list(")")) if self._take("(") else Name(token)

    def _list(self, closing: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self._take(closing):
            if found:
                self._expect(",")
                if closing == "]" and self._take(closing):
                    break
            if self._peek() == ("sign", "?"):
                raise not_here("optional items of a list")
            found.append(self.expression())
        return tuple(found)

    def _entries(self, key: Callable[[], Tree]) -> tuple[Entry, ...]:
        """Entries up to the closing brace; a comma may precede the brace."""
        found: list[Entry] = []
        while not self._take("}"):
            if found:
                self._expect(",")
                if self._take("}"):
                    break
            optional = self._take("?") is not None
            named = key()
            self._expect(":")
            found.append(Entry(named, self.expression(), optional))
        return tuple(found)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self, *tokens: str) -> str | None:
        kind, token = self._peek()
        if token not in tokens or kind not in ("sign", "name"):
            return None
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise Refused(f"Syntax error: mismatched input {self._peek()[1] or 'the end'!r} expecting {token!r}")

    def _name(self, *, selected: bool) -> str:
        kind, token = self._peek()
        if kind != "name" or (selected and (token in _CONSTANTS or token == "in")):
            raise Refused(f"Syntax error: mismatched input {token or 'the end'!r} expecting a name")
        self._at += 1
        return token


def _dotted(tree: Tree) -> str | None:
    """The dotted name of a message; None if the tree is not one."""
    parts: list[str] = []
    while isinstance(tree, Select) and not tree.optional:
        parts.append(tree.name)
        tree = tree.target
    return ".".join([tree.name, *reversed(parts)]) if isinstance(tree, Name) else None


def _integer(token: str, *, negative: bool = False) -> int:
    value = int(token, 16) if token.startswith("0x") else int(token)
    if value > _LARGEST + negative:
        raise Refused(f"invalid int literal: {'-' * negative}{token}")
    return -value if negative else value


def _text(token: str) -> str:
    raw = token[0] in "rR"
    token = token[1:] if raw else token
    marks = 3 if token[:3] in ('"""', "'''") and len(token) >= 6 else 1
    inside = token[marks:-marks]
    return inside if raw else _ESCAPE.sub(_unescaped, inside)


def _unescaped(match: re.Match[str]) -> str:
    of_two, of_four, of_eight, octal, letter = match.groups()
    code = of_two or of_four or of_eight
    if code or octal:
        point = int(code, 16) if code else int(octal, 8)
        if 0xD800 <= point < 0xE000 or point > 0x10FFFF:
            raise Refused(f"invalid escape sequence {match[0]}")
        return chr(point)
    if letter in _ESCAPED:
        return _ESCAPED[letter]
    if letter and letter in _ITSELF:
        return letter
    raise Refused(f"invalid escape sequence {match[0]}")
