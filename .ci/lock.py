"""Locks: what requirements/*.txt say, package by package. Knows their form alone, which `make lock` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?")
_HASH = re.compile(r"\s+--hash=sha256:(?P<hash>[0-9a-f]{64})\s*\\?")


class Locked(NamedTuple):
    """`marker`: where it is installed at all; empty: everywhere. `hashes`: SHA-256 of the archives that pip accepts."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read(lock: Path) -> list[Locked]:
    """The packages of a lock, in its order. Exits where a line is none of a lock's."""
    found: list[Locked] = []
    for number, line in enumerate(lock.read_text().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if package := _PACKAGE.fullmatch(line):
            found.append(Locked(package["name"], package["version"], package["marker"] or "", ()))
        elif (hashed := _HASH.fullmatch(line)) and found:
            found[-1] = found[-1]._replace(hashes=(*found[-1].hashes, hashed["hash"]))
        else:
            raise SystemExit(f"{lock}:{number}: no line of a lock: {line!r}; write the lock anew with `make lock`")
    if bare := [each.name for each in found if not each.hashes]:
        raise SystemExit(f"{lock}: there is no hash of {', '.join(bare)}; write the lock anew with `make lock`")
    return found
