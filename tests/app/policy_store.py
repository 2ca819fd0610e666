"""A store of EscherPolicy objects in memory, as `objects.kind.ObjectStore` asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from extender.app.contracts.kind import Declared, Identity, Named, Replacement, Standing, identity
from extender.core.policies.policy_types import PolicySpec
from extender.kube.errors import Gone, Occupied

Object = Declared[PolicySpec]


class PolicyStore:
    """`next_version`: of the API server that it stands for."""

    def __init__(self, next_version: Callable[[], str]) -> None:
        self.objects: dict[Identity, Object] = {}
        self._next_version = next_version

    async def get(self, name: Named) -> Object:
        return self._at(name)

    async def create(self, item: Object, *, dry_run: bool = False) -> Object:
        if identity(item.name) in self.objects:
            raise Occupied(409, f"{item.name} exists already")
        version = self._next_version()
        return self._keep(replace(item, uid=f"uid-{version}", resource_version=version, generation=1), dry_run)

    async def merge(
        self,
        name: Named,
        change: Replacement[PolicySpec],
        *,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        item = self._at(name, if_version)
        more = item.generation + (item.spec != change.after)
        changed = replace(item, spec=change.after, mark=mark or item.mark, generation=more)
        return self._keep(replace(changed, resource_version=self._next_version()), dry_run)

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> Object:
        item = self._at(name, if_version)
        return self._keep(replace(item, mark=mark or item.mark, resource_version=self._next_version()))

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> Object | None:
        if identity(name) not in self.objects and not there:
            return None
        item = replace(self._at(name, if_version), deleting=True)
        if item.finalizers:
            return self._keep(replace(item, resource_version=self._next_version()), dry_run)
        if not dry_run:
            del self.objects[identity(name)]
        return None

    async def set_status(self, item: Object, status: Standing[PolicySpec]) -> Object:
        there = self._at(item.name)
        if there.uid != item.uid:
            raise Gone(409, f"{item.name} is another now")
        told = replace(there, in_force=status.in_force, said=status.message, said_unready=not status.ready)
        seen = replace(told, observed_generation=item.generation, resource_version=self._next_version())
        return self._keep(seen)

    def _at(self, name: Named, version: str | None = None) -> Object:
        item = self.objects.get(identity(name))
        if item is None:
            raise Gone(404, f"{name} is not there")
        if version is not None and version != item.resource_version:
            raise Occupied(409, f"{name} is at {item.resource_version}, not at {version}")
        return item

    def _keep(self, item: Object, dry_run: bool = False) -> Object:
        if not dry_run:
            self.objects[identity(item.name)] = item
        return item
