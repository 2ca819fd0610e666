"""Nesting: whether what was sent is nested deeper, or larger once its aliases are followed, than can be worked on here.

kube-apiserver lets JSON be 10,000 levels deep. Here fewer are let in, so that nothing that walks an object ever runs
out of stack; no object of any kind that is served comes near.
"""

from __future__ import annotations

import re

DEEPEST = 200
_MOST_NODES = 1_000_000
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_TOO_DEEP = "invalid character '{}' exceeded max depth"


def fault_of_json(body: bytes) -> str:
    """Why the body is not read, in the words of Go's decoder; empty: it may be."""
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
    """The same of what was read from YAML, where one part may stand in many places."""
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
