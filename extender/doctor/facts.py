"""Facts: what was read of a set-up, as plain data without conclusions, and what could not be read.

Kubernetes' objects are their JSON: checks read a few fields of many kinds, and some find them misspelt.
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
from extender.settings.settings import Settings

Json = Mapping[str, Any]


class Part(StrEnum):
    """The parts of a set-up that are read."""

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
    SAFETY_SWITCHES = "the service's safety switches"
    QUOTAS = "quotas of namespaces with waiting pods"
    ITS_NODES = "the service's nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The cluster as its API server describes it; `Facts.unread` names parts that were not read."""

    address: str = ""
    unreachable: str = ""
    """Why no API server answers, if one was to be asked; everything else is then unread."""
    minor: int = 0
    """Of Kubernetes 1."""
    ahead: float = 0.0
    """Seconds by which the API server's clock is ahead of this machine's, to a second."""
    nodes: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    definitions: tuple[Json, ...] = ()
    """CustomResourceDefinitions of Escher's group."""
    policies: tuple[Json, ...] = ()
    """MutatingAdmissionPolicies."""
    bound: frozenset[str] = frozenset()
    """Names of the policies that have a binding."""
    classes: tuple[Json, ...] = ()
    own_namespace: str = ""
    """The service's own namespace, for objects that only the service may write."""
    has_own_namespace: bool = True
    account: str = ""
    """The account whose permissions were checked."""
    denied: tuple[Permission, ...] = ()
    """What the service needs and this account may not do."""

    def waiting_pods(self) -> Iterator[Json]:
        """Pods that have no node and have not ended."""
        for pod in self.pods:
            phase = (pod.get("status") or {}).get("phase", "Pending")
            if phase == "Pending" and not spec_of(pod).get("nodeName"):
                yield pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The service, as it describes itself; parts that were not read are in `Facts.unread`."""

    address: str = ""
    unreachable: str = ""
    """Why no service answers there; everything else is then unread."""
    not_ready: str = ""
    """Why the service is not ready, in its words."""
    version: str = ""
    ages: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each of its watches last sent something."""
    nodes: frozenset[str] = frozenset()
    certificate_ends: datetime | None = None
    """None without https."""
    observes_only: bool = False
    kinds_beyond: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By namespace, the limit of kinds of waiting pods, and how many more there are."""
    without: tuple[str, ...] = ()
    """Kinds that it runs without."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Kinds that it cannot read any more: for how long, why, and the effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What this version of Escher expects to be installed."""

    version: str
    minors: tuple[int, ...]
    """The tested minor versions of Kubernetes 1, lowest first."""
    definitions: tuple[Json, ...]
    mark_policy: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    now: datetime
    shipped: Shipped
    settings: Settings
    """The defaults if none were given."""
    renamed: tuple[str, ...] = ()
    """What the settings file says by old names, each with its new name."""
    schedulers: tuple[SchedulerFile, ...] = ()
    cluster: Cluster = Cluster()
    service: Service = Service()
    unread: Mapping[Part, str] = field(default_factory=dict)
    """Why each part could not be read."""

    @property
    def ours(self) -> tuple[str, ...]:
        """schedulerName of the service's pods."""
        return self.settings.scheduler_names

    @property
    def files(self) -> list[SchedulerFile]:
        """The files with a profile of the service's pods, or an entry for Escher."""
        return [each for each in self.schedulers if self.entries_of(each) or set(self.ours) & {*each.profiles}]

    def entries_of(self, file: SchedulerFile) -> list[Entry]:
        """The entries that are meant for Escher."""
        return [each for each in file.entries if each.calls(self.service.address)]

    @property
    def entries(self) -> list[Entry]:
        return [entry for file in self.files for entry in self.entries_of(file)]

    @property
    def relies_on_the_mark(self) -> bool:
        """Whether pods must say that they need Escher, as in the shipped configuration."""
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
    """The name of an EphemeralResource on nodes and in pods."""
    metadata = metadata_of(resource)
    name = str(metadata.get("name"))
    return f"{DOMAIN}/{name}" if spec_of(resource).get("shared") else f"{DOMAIN}/{metadata.get('namespace')}.{name}"


def some(names: list[str], most: int = 3) -> str:
    """The first `most` names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
