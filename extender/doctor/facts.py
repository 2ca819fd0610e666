"""Facts: what was read of a set-up, as plain data, and what could not be read. Nothing is concluded here.

Kubernetes' objects are their JSON: checks look at a few fields of many kinds, some of which they find misspelt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from extender.core.names import DOMAIN
from extender.doctor.permissions import Permission
from extender.doctor.scheduler_file import Entry, SchedulerFile
from extender.settings import Settings

Json = Mapping[str, Any]


class Part(StrEnum):
    """What can be read, or not."""

    SCHEDULERS = "kube-scheduler's configuration"
    SETTINGS = "the service's settings"
    VERSION = "version of Kubernetes"
    NODES = "nodes"
    PODS = "pods"
    RESOURCES = "EphemeralResources"
    DEFINITIONS = "definitions of Escher's kinds"
    MARKING = "admission policies"
    CLASSES = "DeviceClasses"
    PERMISSIONS = "the service's permissions"
    OWN_NAMESPACE = "the service's own namespace"
    CLOCK = "clock of the API server"
    SERVICE = "service"
    CERTIFICATE = "the service's certificate"
    BRAKE = "the service's brake"
    QUOTAS = "quotas of namespaces with waiting pods"
    ITS_NODES = "the service's nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What was not read is empty, and `Facts.unread` has its part."""

    address: str = ""
    unreachable: str = ""
    """Why no API server answers, where there is one to ask; all else is then unread."""
    minor: int = 0
    """Of Kubernetes 1."""
    ahead: float = 0.0
    """By how many seconds the API server's clock is ahead of this machine's; to a second, for it says no more."""
    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    definitions: tuple[Json, ...] = ()
    """CustomResourceDefinitions of our group."""
    policies: tuple[Json, ...] = ()
    """MutatingAdmissionPolicies."""
    bound: frozenset[str] = frozenset()
    """Names of those that have a binding."""
    classes: tuple[Json, ...] = ()
    own_namespace: str = ""
    """The service's, where it stores what it alone may write."""
    has_own_namespace: bool = True
    account: str = ""
    """Whose permissions were asked about."""
    denied: tuple[Permission, ...] = ()
    """What the service needs, and this account may not do."""

    def waiting_pods(self) -> Iterator[Json]:
        """Those that have no node and have not ended."""
        for pod in self.pods:
            phase = (pod.get("status") or {}).get("phase", "Pending")
            if phase == "Pending" and not spec_of(pod).get("nodeName"):
                yield pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What was not read is empty, and `Facts.unread` has its part."""

    address: str = ""
    unreachable: str = ""
    """Why nobody answers there; all else is then unread."""
    not_ready: str = ""
    """Why it is not, in its words."""
    version: str = ""
    ages: Mapping[str, float] = field(default_factory=dict)
    """For how many seconds each of its watches has said nothing."""
    nodes: frozenset[str] = frozenset()
    certificate_ends: datetime | None = None
    """None where it is not https."""
    observes_only: bool = False
    kinds_beyond: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """How many kinds of waiting pods each namespace may have, and how many more it has."""
    without: tuple[str, ...] = ()
    """Kinds that it runs without."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Kinds that it cannot read any more: for how long, why, and what it does meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What this version of Escher wants to be installed."""

    version: str
    minors: tuple[int, ...]
    """Of Kubernetes 1, on which it is tested, the lowest first."""
    definitions: tuple[Json, ...]
    mark_policy: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    now: datetime
    shipped: Shipped
    settings: Settings
    """The defaults where none were given."""
    schedulers: tuple[SchedulerFile, ...] = ()
    cluster: Cluster = Cluster()
    service: Service = Service()
    unread: Mapping[Part, str] = field(default_factory=dict)
    """Why."""

    @property
    def ours(self) -> tuple[str, ...]:
        """schedulerName of pods that are the service's."""
        return self.settings.scheduler_names

    @property
    def files(self) -> list[SchedulerFile]:
        """Those with a profile of ours or an entry for Escher: whoever has neither need not know of it."""
        return [each for each in self.schedulers if self.entries_of(each) or set(self.ours) & {*each.profiles}]

    def entries_of(self, file: SchedulerFile) -> list[Entry]:
        """Those that are meant for Escher."""
        return [each for each in file.entries if each.calls(self.service.address)]

    @property
    def entries(self) -> list[Entry]:
        return [entry for file in self.files for entry in self.entries_of(file)]

    @property
    def relies_on_the_mark(self) -> bool:
        """Whether pods have to say that they need Escher; so it is as shipped."""
        entries = self.entries
        return not entries or any(not each.of_every_pod for each in entries)


def spec_of(thing: Json) -> Json:
    found: Json = thing.get("spec") or {}
    return found


def metadata_of(thing: Json) -> Json:
    found: Json = thing.get("metadata") or {}
    return found


def scheduler_of(pod: Json) -> str:
    return str(spec_of(pod).get("schedulerName") or "default-scheduler")


def named(thing: Json) -> str:
    """`namespace/name`, or the name alone."""
    metadata = metadata_of(thing)
    namespace, name = metadata.get("namespace"), str(metadata.get("name", "?"))
    return f"{namespace}/{name}" if namespace else name


def key_of(resource: Json) -> str:
    """What nodes and pods call an EphemeralResource."""
    metadata = metadata_of(resource)
    name = str(metadata.get("name"))
    return f"{DOMAIN}/{name}" if spec_of(resource).get("shared") else f"{DOMAIN}/{metadata.get('namespace')}.{name}"


def some(names: list[str], most: int = 3) -> str:
    """The first of these, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
