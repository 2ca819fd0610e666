"""PodGroups of scheduler-plugins (scheduling.x-k8s.io/v1alpha1): a kind that Escher follows."""

from __future__ import annotations

from msgspec import Struct

from extender.adapters.kubernetes.reflectors.watched_kind import WatchedKind
from extender.core.gangs.state.pod_groups import PodGroup
from extender.kube.client.requests import address

GROUP, VERSION, PLURAL = "scheduling.x-k8s.io", "v1alpha1", "podgroups"


class _Json(Struct, rename="camel"):
    pass


class PodGroupMetadata(_Json):
    name: str
    namespace: str
    resource_version: str = ""


class PodGroupSpec(_Json):
    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class PodGroupJson(_Json):
    metadata: PodGroupMetadata
    spec: PodGroupSpec | None = None


def to_pod_group(group: PodGroupJson) -> PodGroup:
    spec, metadata = group.spec or PodGroupSpec(), group.metadata
    seconds = spec.schedule_timeout_seconds
    timeout = float(seconds) if seconds is not None and seconds > 0 else None
    return PodGroup(metadata.namespace, metadata.name, spec.min_member, timeout)


def pod_groups() -> WatchedKind[PodGroup]:
    return WatchedKind("podgroups", address("apis", GROUP, VERSION, PLURAL), PodGroupJson, to_pod_group)
