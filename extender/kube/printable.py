"""Printable: text of others as a terminal, a log or an event may show it.

Kubernetes lets tenants write any text into some fields (the kind and name of an owner, a scheduler's name). Control
characters, line breaks and marks that turn the direction of text come out as JSON writes them, so that what is escaped
here may stand in JSON too. Must not know what is shown, nor where.
"""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    """The text in one line, with nothing in it that a terminal takes for a command. `keep`: stays as it is."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escaped(character: str) -> str:
    if (short := _SHORT.get(character)) is not None:
        return short
    # Beyond 0xffff JSON writes two halves.
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
