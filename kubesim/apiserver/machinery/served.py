"""Served: the kinds that are served now, and the target of a path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubesim.kinds import NAMESPACE, POD, Kind


@dataclass(frozen=True)
class Target:
    """The target of a path: a collection (empty `name`), an object, or one of its subresources.

    `namespace` is None for all namespaces, and empty for cluster-scoped kinds.
    """

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def where(self) -> str:
        """The namespace as the store uses it."""
        return self.namespace or ""


class Served:
    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        self.add(kinds)

    def all(self) -> tuple[Kind, ...]:
        return tuple(self._kinds.values())

    def add(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        """Stops serving all versions of this resource."""
        self._kinds = {key: kind for key, kind in self._kinds.items() if (key[0], key[2]) != (group, plural)}

    def has_version(self, path: str) -> bool:
        """Whether the path is below a built-in group and version, so that a 404 has a Status."""
        return any(path.startswith(f"{kind.root}/") for kind in self._kinds.values() if not kind.is_custom)

    def target(self, path: str) -> Target | None:
        """The target of the path; None if nothing is served there."""
        parts = path.strip("/").split("/")
        if len(parts) >= 3 and parts[:2] == ["api", "v1"]:
            group, version, rest = "", "v1", parts[2:]
        elif len(parts) >= 4 and parts[0] == "apis":
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            return None
        if rest[0] == "namespaces" and len(rest) >= 3 and not (group == "" and len(rest) == 3 and self._part(rest[2])):
            if rest[2:] == ["bindings"] and not group:
                # The older path for binding: the Binding itself names the pod.
                return Target(POD, rest[1], "", "binding")
            kind = self._kinds.get((group, version, rest[2]))
            if kind is None or not kind.namespaced or len(rest) > 5:
                return None
            return Target(kind, rest[1], *rest[3:])
        kind = self._kinds.get((group, version, rest[0]))
        if kind is None or len(rest) > (1 if kind.namespaced else 3):
            return None
        return Target(kind, None if kind.namespaced else "", *rest[1:])

    @staticmethod
    def _part(name: str) -> bool:
        """Whether this is a subresource of namespaces rather than a kind in a namespace."""
        return name in NAMESPACE.subresources or name == "finalize"
