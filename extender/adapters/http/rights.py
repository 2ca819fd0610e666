"""Rights: the RBAC rights that each call of the management API needs, in one literal table.

A route without a row in the table cannot be created. Endpoints check themselves what depends on the body: each
operation of a transaction, and a shared resource."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from fastapi import Request, Response

from extender.adapters.http.call_admission import ADMITTED, Admitted
from extender.adapters.http.models.strict_json import StrictRoute
from extender.app.admin.authorization import Right
from extender.app.contracts.api import Claim, Operation, Release, SetResource
from extender.core.names import EphemeralName

RESOURCES, SHARED, CLAIMS = "ephemeralresources", "ephemeralresources/shared", "claims"
POLICIES, ASKS = "escherpolicies", "escherpolicies/ask"
SET = ("create", "update")
"""A caller that sets an object may need to create it or to update it."""


class Where(Enum):
    """The namespace in which a right is needed."""

    NAMESPACE = auto()
    """The namespace of the path."""
    QUERY = auto()
    """The namespace of `?namespace=`; all namespaces if there is none."""
    EVERYWHERE = auto()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a call needs: each of `verbs`. `name`: the path parameter that names the object.

    `changes`: the call may change something, and is written to the audit log."""

    resource: str = ""
    verbs: tuple[str, ...] = ()
    where: Where = Where.NAMESPACE
    name: str = ""
    changes: bool = False

    def rights(self, request: Request) -> list[Right]:
        """Returns the rights that this request needs."""
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
"""For every authenticated caller."""

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
    ("GET", "/safety-switches"): Needs("brakes", ("get",), Where.EVERYWHERE),
    ("GET", "/brake"): Needs("brakes", ("get",), Where.EVERYWHERE),
    ("GET", "/state-dump"): Needs("statedumps", ("get",), Where.EVERYWHERE),
    ("POST", "/what-if"): Needs("whatifs", ("create",), Where.EVERYWHERE),
    # Each operation needs its own right, in its own namespace.
    ("POST", "/transactions"): Needs(where=Where.EVERYWHERE, changes=True),
}
"""By method and by path below `/v1`."""


class GuardedRoute(StrictRoute):
    """An endpoint that checks the caller's rights before it reads the body."""

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
    """Returns the admission of this request."""
    found = request.scope.get(ADMITTED)
    if isinstance(found, Admitted):
        return found
    if request.app.state.behind_entry:
        # A caller that was not admitted is never treated as an admitted one.
        raise RuntimeError("a request bypassed the entry")
    return Admitted()


async def require_shared(request: Request, namespace: str, name: str, verbs: Sequence[str]) -> None:
    """Checks that the caller may do that to shared resources of the namespace. Raises Problem."""
    rights = [Right(verb=verb, resource=SHARED, namespace=namespace, name=name) for verb in verbs]
    await admitted_in(request).require(*rights)


async def require_operations(request: Request, operations: Sequence[Operation]) -> None:
    """Checks that the caller may do each operation in its namespace. Raises Problem."""
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
