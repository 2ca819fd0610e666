"""Names of ours: what a gang and an ephemeral resource are called. Kubernetes' own names are `kube.names`.

Knows that the first dot after the slash separates namespace from name. Must not know where a name came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from extender.kube.names import LABEL_LIMIT, InvalidName, ResourceKey, require_label

DOMAIN = "escher.dev"
MANAGED = ResourceKey(f"{DOMAIN}/managed")
"""What a pod asks for so that a kube-scheduler calls us which does so for such pods alone (`managedResources` of its
extender). It exists on no node, and counts nowhere."""
CORE_GROUP = "core"
"""How the API group without a name is shown."""
_START_OF_UID = 8


FORMER_INTENT = f"{DOMAIN}/transaction"
"""The annotation of EphemeralResources in which versions before TransactionIntent noted what a transaction was about to
write. Tenants can write it: nothing of it is believed, and it is not looked into."""


@dataclass(frozen=True, slots=True, order=True)
class GangKey:
    """A gang's identity: a namespace, a name in it, and the controller that the name comes from, if it comes from one.

    A gang by label, or by PodGroup, has its name alone: no two of these spell it alike. One that is derived from a
    controller has the controller's API group and UID. So gangs of one name and of several controllers are not the same:
    `gangs.naming` says how each is shown then.
    """

    namespace: str
    name: str
    group: str = ""
    uid: str = ""

    @property
    def id(self) -> str:
        """No other gang has the same."""
        return f"{self.namespace}/{self.spellings[-1]}"

    @property
    def derived(self) -> bool:
        """Whether the gang has its name from a controller."""
        return bool(self.uid)

    @property
    def spellings(self) -> tuple[str, str, str, str]:
        """Its name; with the group; with the start of the UID; with the whole UID, which no other gang shares.

        One that is not derived has its name alone. No part has an `@` of its own.
        """
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
    """An ephemeral resource's identity. `namespace` is its owner's; the key of a shared one does not show it."""

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
    """The resource of that namespace and name. Raises InvalidName, with limit and length where it is too long."""
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
        raise InvalidName("name", name, f"is taken: pods ask for {MANAGED} so that Escher is asked about them")
    return EphemeralName(namespace, name, shared)


@lru_cache(maxsize=65536)
def in_domain(key: str, domain: str = DOMAIN) -> bool:
    """Whether the resource is one of ours, that is, ephemeral."""
    return key.startswith(domain + "/")
