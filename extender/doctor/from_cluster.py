"""From the cluster: reads the parts of a set-up from its API server.

Reads objects and asks for permissions; changes nothing. Of pods and nodes, which may be many, it keeps only what checks
read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from extender.core.names import DOMAIN
from extender.doctor.facts import Cluster, Json, Part, metadata_of, spec_of
from extender.doctor.lists import answered, listed
from extender.doctor.permissions import IN_OWN_NAMESPACE, NEEDED, OPTIONAL_KINDS, Election, Permission
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Away, Gone, Refused, Unavailable
from extender.settings.settings import OWN_NAMESPACE

PARTS = (
    *(Part.VERSION, Part.CLOCK, Part.NODES, Part.PODS, Part.RESOURCES),
    *(Part.DEFINITIONS, Part.MARKING, Part.CLASSES, Part.PERMISSIONS, Part.OWN_NAMESPACE),
)
"""The parts that are read here."""

_MARKING_VERSIONS = ("v1", "v1beta1")
"""Of MutatingAdmissionPolicy: v1beta1 needs a feature gate of Kubernetes 1.34 and 1.35."""
_METADATA = ("name", "namespace", "labels", "annotations", "ownerReferences")
_POD_SPEC = ("schedulerName", "nodeName", "schedulingGates")
_MADE_BY_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"


class ServiceAccount(NamedTuple):
    namespace: str
    name: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    @property
    def groups(self) -> list[str]:
        return ["system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"]


async def read_cluster(
    requests: Requests,
    now: Callable[[], datetime],
    *,
    where: str = "",
    account: ServiceAccount | None = None,
    election: Election | None = None,
    own_namespace: str = OWN_NAMESPACE,
) -> tuple[Cluster, dict[Part, str]]:
    """The cluster, and the reason for each part that could not be read.

    `account`: whose permissions are checked; None: the caller's. `where`: the API server's address, for people.
    `election`: adds the permissions that it needs. `own_namespace`: the service's.
    """
    unread: dict[Part, str] = {}
    said: dict[str, Any] = {"address": where, "own_namespace": own_namespace}

    async def read(part: Part, reading: Awaitable[Mapping[str, Any]]) -> None:
        try:
            said.update(await reading)
        except (Refused, Unavailable) as error:
            unread[part] = str(error)

    try:
        said.update(await _version(requests))
    except Away as error:
        return Cluster(address=where, unreachable=str(error)), dict.fromkeys(PARTS, "no API server answers")
    except (Refused, Unavailable) as error:
        unread[Part.VERSION] = str(error)
    await asyncio.gather(
        read(Part.CLOCK, _clock(requests, now)),
        read(Part.NODES, _all("nodes", requests, "api", "v1", "nodes", keep=_node)),
        read(Part.PODS, _all("pods", requests, "api", "v1", "pods", keep=_pod)),
        read(Part.RESOURCES, _resources(requests)),
        read(Part.DEFINITIONS, _definitions(requests)),
        read(Part.MARKING, _marking(requests)),
        read(Part.CLASSES, _classes(requests)),
        read(Part.PERMISSIONS, _denied(requests, account, election, own_namespace)),
        read(Part.OWN_NAMESPACE, _own_namespace(requests, own_namespace)),
    )
    return Cluster(**said), unread


async def _version(requests: Requests) -> Mapping[str, Any]:
    said = await answered(requests, "GET", "/version")
    number = re.match(r"\d+", str(said.get("minor", "")))
    if number is None:
        raise Unavailable(f"minor is {said.get('minor')!r}, not a number")
    return {"minor": int(number[0])}


async def _who(requests: Requests) -> dict[str, Any]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return await answered(requests, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)


async def _clock(requests: Requests, now: Callable[[], datetime]) -> Mapping[str, Any]:
    """Of all requests that store nothing, only this answer has the time of the request."""
    before = now()
    stamp = metadata_of(await _who(requests)).get("creationTimestamp")
    if not stamp:
        raise Unavailable("its SelfSubjectReview has no creationTimestamp")
    between = before + (now() - before) / 2
    # It omits fractions of a second: 0.5 s on average.
    return {"ahead": (datetime.fromisoformat(stamp) - between).total_seconds() + 0.5}


async def _all(
    what: str, requests: Requests, *parts: str, keep: Callable[[Json], Json] = lambda each: each
) -> Mapping[str, Any]:
    return {what: tuple([keep(each) async for each in listed(requests, *parts)])}


async def _resources(requests: Requests) -> Mapping[str, Any]:
    try:
        return await _all("resources", requests, "apis", DOMAIN, "v1alpha1", "ephemeralresources")
    except Gone:
        raise Unavailable("the kind is not installed") from None


async def _definitions(requests: Requests) -> Mapping[str, Any]:
    found = listed(requests, "apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions")
    return {"definitions": tuple([each async for each in found if spec_of(each).get("group") == DOMAIN])}


async def _marking(requests: Requests) -> Mapping[str, Any]:
    for version in _MARKING_VERSIONS:
        with suppress(Gone):
            where = ("apis", "admissionregistration.k8s.io", version)
            policies = [each async for each in listed(requests, *where, "mutatingadmissionpolicies")]
            bindings = [each async for each in listed(requests, *where, "mutatingadmissionpolicybindings")]
            return {
                "policies": tuple(policies),
                "bound": frozenset(str(spec_of(each).get("policyName")) for each in bindings),
            }
    # Without the kind, no policy marks pods.
    return {"policies": (), "bound": frozenset()}


async def _classes(requests: Requests) -> Mapping[str, Any]:
    try:
        return await _all("classes", requests, "apis", "resource.k8s.io", "v1", "deviceclasses")
    except Gone:
        # Without the kind, no class claims a name.
        return {"classes": ()}


async def _own_namespace(requests: Requests, namespace: str) -> Mapping[str, Any]:
    try:
        await answered(requests, "GET", address("api", "v1", "namespaces", namespace))
    except Gone:
        return {"has_own_namespace": False}
    return {"has_own_namespace": True}


async def _denied(
    requests: Requests, account: ServiceAccount | None, election: Election | None, own_namespace: str
) -> Mapping[str, Any]:
    groups = await answered(requests, "GET", "/apis")
    installed = {str(each.get("name")) for each in groups.get("groups") or ()}
    asked = [each for each in NEEDED if each.group not in OPTIONAL_KINDS or each.group in installed]
    reviews = [_allowed(requests, each, account) for each in asked]
    asked += IN_OWN_NAMESPACE
    reviews += [_allowed(requests, each, account, namespace=own_namespace) for each in IN_OWN_NAMESPACE]
    if election is not None:
        asked += election.needed
        for each in election.needed:
            where = {"namespace": election.namespace, "name": election.name_of(each)}
            reviews.append(_allowed(requests, each, account, **where))
    allowed = await asyncio.gather(*reviews)
    whose = account.user if account else str(((await _who(requests)).get("status") or {})["userInfo"]["username"])
    return {
        "denied": tuple(each for each, may in zip(asked, allowed, strict=True) if not may),
        "account": whose,
    }


async def _allowed(
    requests: Requests, asked: Permission, account: ServiceAccount | None, namespace: str = "", name: str = ""
) -> bool:
    kind = "SelfSubjectAccessReview" if account is None else "SubjectAccessReview"
    resource, _, subresource = asked.resource.partition("/")
    attributes = {"group": asked.group, "resource": resource, "subresource": subresource, "verb": asked.verb}
    attributes |= {field: said for field, said in (("namespace", namespace), ("name", name)) if said}
    who = {} if account is None else {"user": account.user, "groups": account.groups}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": attributes, **who},
    }
    answer = await answered(requests, "POST", f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
    return bool((answer.get("status") or {}).get("allowed"))


# -- the fields that are kept of pods and nodes ----------------------------------------------------------------------


def _pod(pod: Json) -> Json:
    spec = spec_of(pod)
    containers = {
        field: [{"resources": each.get("resources")} for each in spec.get(field) or ()]
        for field in ("containers", "initContainers")
    }
    status = {"phase": (pod.get("status") or {}).get("phase", "Pending")}
    return {"metadata": _metadata(pod), "spec": {**_only(spec, _POD_SPEC), **containers}, "status": status}


def _node(node: Json) -> Json:
    return {"metadata": _metadata(node), "status": _only(node.get("status") or {}, ("capacity", "allocatable"))}


def _metadata(thing: Json) -> Json:
    metadata = dict(_only(metadata_of(thing), _METADATA))
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_MADE_BY_KUBECTL, None)
    return {**metadata, "annotations": annotations}


def _only(said: Json, fields: Iterable[str]) -> Json:
    return {field: said[field] for field in fields if field in said}
