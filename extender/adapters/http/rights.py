"""Rights: what each call of the management API needs, in Kubernetes' words, so that plain RBAC gives it or not.

One literal table. A route that has no row cannot be made. What a body alone says (each operation of a transaction, a
resource that is shared) is asked for by the endpoint. Must not know who calls, nor who decides.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from fastapi import Request, Response

from extender.adapters.http.call_admission import ADMITTED, Admitted
from extender.adapters.http.strict_json import StrictRoute
from extender.app.admin.authorization import Right
from extender.app.contracts.api import Claim, Operation, Release, SetResource
from extender.core.names import EphemeralName

RESOURCES, SHARED, CLAIMS = "ephemeralresources", "ephemeralresources/shared", "claims"
POLICIES, ASKS = "escherpolicies", "escherpolicies/ask"
SET = ("create", "update")
"""Whoever says what is to be may both make it and change it."""


class Where(Enum):
    """Where a right has to be."""

    NAMESPACE = auto()
    """In the namespace of the path."""
    QUERY = auto()
    """In the one of `?namespace=`; in all, where none is named."""
    EVERYWHERE = auto()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call needs: each of `verbs`. `name`: the part of the path that names one. `changes`: it may change
    something, and is told to the audit log."""

    resource: str = ""
    verbs: tuple[str, ...] = ()
    where: Where = Where.NAMESPACE
    name: str = ""
    changes: bool = False

    def rights(self, request: Request) -> list[Right]:
        """The rights that this request needs."""
        match self.where:
            case Where.NAMESPACE:
                namespace = request.path_params.get("ns", "")
            case Where.QUERY:
                namespace = request.query_params.get("namespace") or ""
            case Where.EVERYWHERE:
                namespace = ""
        name = request.path_params[self.name] if self.name else ""
        return [Right(verb=verb, resource=self.resource, namespace=namespace, name=name) for verb in self.verbs]


KNOWN_ONE = Needs()
"""Anybody who is known."""

NEEDS: Mapping[tuple[str, str], Needs] = {
    ("GET", "/namespaces/{ns}/resources"): Needs(RESOURCES, ("list",)),
    ("GET", "/namespaces/{ns}/resources/{name}"): Needs(RESOURCES, ("get",), name="name"),
    ("PUT", "/namespaces/{ns}/resources/{name}"): Needs(RESOURCES, SET, name="name", changes=True),
    ("DELETE", "/namespaces/{ns}/resources/{name}"): Needs(RESOURCES, ("delete",), name="name", changes=True),
    ("GET", "/namespaces/{ns}/policies"): Needs(POLICIES, ("list",)),
    ("POST", "/namespaces/{ns}/policies:validate"): Needs(POLICIES, ("get",)),
    ("GET", "/namespaces/{ns}/policies/{name}"): Needs(POLICIES, ("get",), name="name"),
    ("PUT", "/namespaces/{ns}/policies/{name}"): Needs(POLICIES, SET, name="name", changes=True),
    ("PATCH", "/namespaces/{ns}/policies/{name}"): Needs(POLICIES, ("patch",), name="name", changes=True),
    ("DELETE", "/namespaces/{ns}/policies/{name}"): Needs(POLICIES, ("delete",), name="name", changes=True),
    ("POST", "/namespaces/{ns}/policies/{name}:ask"): Needs(ASKS, ("create",), name="name", changes=True),
    ("GET", "/policy-types"): KNOWN_ONE,
    ("GET", "/namespaces/{ns}/gangs"): Needs("gangs", ("list",)),
    ("GET", "/namespaces/{ns}/gangs/{name}"): Needs("gangs", ("get",), name="name"),
    ("GET", "/namespaces/{ns}/gangs/{name}/explain"): Needs("explanations", ("get",), name="name"),
    ("GET", "/namespaces/{ns}/pods/{pod}/explain"): Needs("explanations", ("get",), name="pod"),
    ("GET", "/namespaces/{ns}/quota"): Needs("quotas", ("get",)),
    ("GET", "/cluster-state"): Needs("nodestates", ("list",), Where.QUERY),
    ("GET", "/events"): Needs("decisions", ("watch",), Where.QUERY),
    ("GET", "/brake"): Needs("brakes", ("get",), Where.EVERYWHERE),
    ("GET", "/state-dump"): Needs("statedumps", ("get",), Where.EVERYWHERE),
    ("POST", "/what-if"): Needs("whatifs", ("create",), Where.EVERYWHERE),
    # What its operations need, each in its namespace.
    ("POST", "/transactions"): Needs(where=Where.EVERYWHERE, changes=True),
}
"""By method and path below `/v1`."""


class GuardedRoute(StrictRoute):
    """An endpoint that is called by those who may, and before anything of the body is looked at."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        needs = NEEDS["".join(self.methods or ()), self.path_format]

        async def guarded(request: Request) -> Response:
            admitted = admitted_in(request)
            admitted.changes = needs.changes
            await admitted.require(*needs.rights(request))
            return await handler(request)

        return guarded


def admitted_in(request: Request) -> Admitted:
    """Who has been let in with this request."""
    found = request.scope.get(ADMITTED)
    if isinstance(found, Admitted):
        return found
    if request.app.state.behind_entry:
        # Nobody is taken for somebody who may.
        raise RuntimeError("a request has come past the entry")
    return Admitted()


async def require_shared(request: Request, namespace: str, name: str, verbs: Sequence[str]) -> None:
    """The caller may do that to shared resources of this namespace too. Raises Problem."""
    rights = [Right(verb=verb, resource=SHARED, namespace=namespace, name=name) for verb in verbs]
    await admitted_in(request).require(*rights)


async def require_operations(request: Request, operations: Sequence[Operation]) -> None:
    """The caller may do all of it, each in its namespace. Raises Problem."""
    rights: dict[Right, None] = {}
    for operation in operations:
        match operation:
            case SetResource(name=name):
                rights |= dict.fromkeys(_to_set(name))
            case Claim():
                rights[Right(verb="create", resource=CLAIMS, namespace=operation.namespace)] = None
            case Release():
                rights[Right(verb="delete", resource=CLAIMS, namespace=operation.namespace)] = None
    await admitted_in(request).require(*rights)


def _to_set(name: EphemeralName) -> list[Right]:
    resources = (RESOURCES, SHARED) if name.shared else (RESOURCES,)
    return [
        Right(verb=verb, resource=resource, namespace=name.namespace, name=name.name)
        for resource in resources
        for verb in SET
    ]
