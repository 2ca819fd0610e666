"""Nesting: limits the depth of a body, and its size once YAML aliases are expanded.

kube-apiserver allows 10,000 levels of JSON. The limit here is lower, so that recursive functions never overflow the
stack. No object of a served kind comes near it.
"""

from __future__ import annotations

import re

DEEPEST = 200
_MOST_NODES = 1_000_000
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_TOO_DEEP = "invalid character '{}' exceeded max depth"


def fault_of_json(body: bytes) -> str:
    """Why the body is refused, in the words of Go's decoder; empty if it is accepted."""
    if body.count(b"{") + body.count(b"[") <= DEEPEST:
        return ""
    depth = 0
    for found in _BRACKETS.finditer(_TEXT.sub(b"", body)):
        bracket = found.group()
        if bracket in b"[{":
            depth += 1
            if depth > DEEPEST:
                return _TOO_DEEP.format(bracket.decode())
        else:
            depth -= 1
    return ""


def fault_of(value: object) -> str:
    """The same for a value read from YAML, where aliases may repeat a part many times."""
    waiting = [(value, 1)]
    seen = 0
    while waiting:
        found, depth = waiting.pop()
        seen += 1
        if seen > _MOST_NODES:
            return "yaml: document contains excessive aliasing"
        if isinstance(found, dict | list):
            if depth > DEEPEST:
                return _TOO_DEEP.format("{" if isinstance(found, dict) else "[")
            waiting += [(each, depth + 1) for each in (found.values() if isinstance(found, dict) else found)]
    return ""
