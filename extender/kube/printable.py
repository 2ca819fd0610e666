"""Printable: makes foreign text safe for a terminal, a log or an event.

Kubernetes lets tenants write any text into some fields (kind and name of an owner, a scheduler's name). Control
characters, line breaks and marks that change text direction are escaped as in JSON. So escaped text is valid in JSON
too.
"""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """The text in one line, without characters that control a terminal. Those in `keep` stay."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(character: str) -> str:
    if (short := _SHORT.get(character)) is not None:
        return short
    # JSON writes two halves for characters beyond 0xffff.
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
