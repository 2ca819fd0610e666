"""What can be reached from an object: how much is in each container, by the attribute that holds it. For tests that
look for what grows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

_CONTAINERS = (dict, list, set, frozenset, tuple, deque)
_OURS = "extender"


def sizes(root: object, but: Collection[str] = ()) -> Counter[str]:
    """`{"Cache.pods": 3}`; what is in a container within a container is `NodeRows.by_node[]`. `but`: these are left
    out, and all that only they have."""
    found: Counter[str] = Counter()
    seen: set[int] = set()
    ahead: list[tuple[object, str]] = [(root, "")]
    while ahead:
        each, name = ahead.pop()
        if id(each) in seen or name in but:
            continue
        seen.add(id(each))
        if isinstance(each, _CONTAINERS):
            if not isinstance(each, tuple):
                found[name] += len(each)
            within = [*each.keys(), *each.values()] if isinstance(each, dict) else each
            ahead += [(item, name if name.endswith("[]") else f"{name}[]") for item in within]
        else:
            ahead += _held_by(each)
    return found


def _held_by(each: Any) -> Iterator[tuple[object, str]]:
    if isinstance(each, FunctionType):
        for cell in each.__closure__ or ():
            yield _content(cell), f"{each.__qualname__}()"
    elif isinstance(each, MethodType):
        yield each.__self__, ""
    elif type(each).__module__.startswith(_OURS) and not isinstance(each, type):
        owner = type(each)
        names = [*getattr(each, "__dict__", ()), *(name for base in owner.__mro__ for name in _slots(base))]
        for name in names:
            yield getattr(each, name, None), f"{owner.__name__}.{name}"


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _slots(base: type) -> Iterator[str]:
    slots = base.__dict__.get("__slots__", ())
    yield from (slots,) if isinstance(slots, str) else slots
