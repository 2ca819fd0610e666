"""Naming: gives each gang a name that no other gang has, to show it and to find it.

A gang has its name alone, `job.train`, while no other gang of its namespace shares it. If several share it:

- A gang that a label names, itself or by a PodGroup, keeps the name alone.
- A gang derived from a controller is shown with the controller's API group: `job.train@batch.example.org`.
- Of several gangs of one group, the one whose oldest member is the youngest is shown so. The others also have the start
  of their UID: `job.train@batch@3f9c1a00`. Such are a Job and its successor, while pods of the first still terminate.

Names depend only on the present gangs, so all replicas, and each run of the service, give the same. Each longer
spelling can be looked up at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TypeVar

from extender.core.gangs.state.gang import Gang
from extender.core.names import GangKey

_COMPARED = 16
"""Number of gangs of one name and group compared by age; if more, each is shown with its UID."""
_TOLD = 5

T = TypeVar("T")
_Said = tuple[str, str]
"""A namespace, and a spelling in it."""
_Index = dict[_Said, dict[GangKey, None]]


class Ambiguous(LookupError):
    """Several gangs share the spelling. `names`: the names of some of them."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class Naming:
    def __init__(self, gangs: Mapping[GangKey, Gang]) -> None:
        self._gangs = gangs
        self._by_group: _Index = {}
        self._by_short: _Index = {}
        """Derived gangs by namespace and spelling: with the group, and with the start of the UID."""
        self._groups: dict[_Said, dict[str, int]] = {}
        """By namespace and name: the spellings with a group, and how many gangs have each."""
        self._by_whole: dict[_Said, GangKey] = {}

    def add(self, key: GangKey) -> None:
        alone, of_group, short, whole = key.spellings
        groups = self._groups.setdefault((key.namespace, alone), {})
        groups[of_group] = groups.get(of_group, 0) + 1
        self._by_group.setdefault((key.namespace, of_group), {})[key] = None
        self._by_short.setdefault((key.namespace, short), {})[key] = None
        self._by_whole[key.namespace, whole] = key

    def drop(self, key: GangKey) -> None:
        alone, of_group, short, whole = key.spellings
        groups = self._groups[key.namespace, alone]
        groups[of_group] -= 1
        if not groups[of_group]:
            del groups[of_group]
        if not groups:
            del self._groups[key.namespace, alone]
        for index, spelling in ((self._by_group, of_group), (self._by_short, short)):
            keys = index[key.namespace, spelling]
            del keys[key]
            if not keys:
                del index[key.namespace, spelling]
        del self._by_whole[key.namespace, whole]

    def of(self, key: GangKey) -> str:
        """The name of the gang now; or, if the gang has ended, the name that it would have."""
        alone, of_group, short, whole = key.spellings
        if self._youngest(key.namespace, of_group, key) != key:
            return whole if _others(self._by_short.get((key.namespace, short)), key) else short
        return of_group if _others(self._groups.get((key.namespace, alone)), of_group) else alone

    def spoken(self, key: GangKey) -> GangKey:
        """The same gang under its shown name, which `find` accepts."""
        return GangKey(key.namespace, self.of(key))

    def is_taken(self, key: GangKey) -> bool:
        """Whether a gang has this name, alone or shared."""
        return (key.namespace, key.name) in self._groups

    def find(self, key: GangKey) -> Gang | None:
        """The gang with that key or shown name. Raises Ambiguous."""
        said = key.namespace, key.name
        if key in self._gangs or key.derived:
            return self._gangs.get(key)
        if (found := self._by_whole.get(said)) is not None:
            return self._gangs[found]
        groups = self._groups.get(said, {})
        if len(groups) > 1:
            raise Ambiguous([*islice(groups, _TOLD)])
        said = key.namespace, next(iter(groups), key.name)
        several = self._by_group.get(said) or self._by_short.get(said) or {}
        found = next(iter(several), None) if len(several) < 2 else None
        if len(several) > 1 and said in self._by_group:
            found = self._youngest(*said)
        if several and found is None:
            raise Ambiguous([each.spellings[-1] for each in islice(several, _TOLD)])
        return None if found is None else self._gangs[found]

    def _youngest(self, namespace: str, of_group: str, otherwise: GangKey | None = None) -> GangKey | None:
        """The youngest of that group and name.

        `otherwise`: if there are none. None: too many to compare."""
        keys = self._by_group.get((namespace, of_group), {})
        if len(keys) > _COMPARED:
            return None
        return max(keys, key=lambda key: (self._gangs[key].terms.created, key), default=otherwise)


def _others(known: Mapping[T, object] | None, one: T) -> bool:
    return known is not None and len(known) > (one in known)
