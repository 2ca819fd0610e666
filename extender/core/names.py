"""Escher's names for gangs and ephemeral resources. Kubernetes' own names are in `kube.names`.

The first dot after the slash separates namespace from name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from extender.kube.names import LABEL_LIMIT, InvalidName, ResourceKey, require_label

DOMAIN = "escher.dev"
MANAGED = ResourceKey(f"{DOMAIN}/managed")
"""Pods request it so that a kube-scheduler calls Escher only for them (`managedResources`).

It exists on no node, and counts nowhere."""
CORE_GROUP = "core"
"""How the API group without a name is shown."""
_START_OF_UID = 8


FORMER_INTENT = f"{DOMAIN}/transaction"
"""Annotation of EphemeralResources: a planned transaction, before TransactionIntent existed.

Tenants can write it: Escher neither trusts nor reads it."""


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A gang's identity: namespace, name, and the controller that the name derives from, if any.

    A gang by label or PodGroup has only its name, which is unique among these. A derived gang has its controller's API
    group and UID. So gangs of several controllers with one name differ: `gangs.naming` says how each is shown.
    """

    namespace: str
    name: str
    group: str = ""
    uid: str = ""

    @property
    def id(self) -> str:
        """Unique among gangs."""
        return f"{self.namespace}/{self.spellings[-1]}"

    @property
    def derived(self) -> bool:
        """Whether the gang has its name from a controller."""
        return bool(self.uid)

    @property
    def spellings(self) -> tuple[str, str, str, str]:
        """Its name; with the group; with the start of the UID; with the whole UID, which is unique.

        A gang that is not derived has its name alone. No part contains an `@` of its own."""
        if not self.derived:
            return self.name, self.name, self.name, self.name
        of_group = f"{self.name}@{self.group or CORE_GROUP}"
        return self.name, of_group, f"{of_group}@{self.uid[:_START_OF_UID]}", f"{of_group}@{self.uid}"

    def __repr__(self) -> str:
        controller = f", group={self.group!r}, uid={self.uid!r}" if self.derived else ""
        return f"GangKey(namespace={self.namespace!r}, name={self.name!r}{controller})"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class EphemeralName:
    """An ephemeral resource's identity with its owner's namespace, which a shared key omits."""

    namespace: str
    name: str
    shared: bool = False

    def key(self, domain: str = DOMAIN) -> ResourceKey:
        """The spelling on nodes and in pods."""
        part = self.name if self.shared else f"{self.namespace}.{self.name}"
        return ResourceKey(f"{domain}/{part}")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def ephemeral_name(namespace: str, name: str, *, shared: bool = False) -> EphemeralName:
    """The resource of that name. Raises InvalidName, with limit and length if it is too long."""
    require_label("namespace", namespace)
    require_label("name", name)
    whole = name if shared else f"{namespace}.{name}"
    if len(whole) > LABEL_LIMIT:
        raise InvalidName(
            "name",
            name,
            f"is too long: {whole!r} has {len(whole)} characters; the limit for the part after '/' is {LABEL_LIMIT}",
        )
    if shared and ResourceKey(f"{DOMAIN}/{name}") == MANAGED:
        raise InvalidName("name", name, "is reserved: kube-scheduler asks Escher about pods that request it")
    return EphemeralName(namespace, name, shared)


@lru_cache(maxsize=65536)
def in_domain(key: str, domain: str = DOMAIN) -> bool:
    """Whether the resource is Escher's, that is, ephemeral."""
    return key.startswith(domain + "/")
