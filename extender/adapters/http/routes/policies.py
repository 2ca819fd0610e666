"""Policies: sets, changes, reads and deletes EscherPolicy objects, and lists the policy types."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Request, Response

from extender.adapters import policy_models
from extender.adapters.http.models import policy_bodies
from extender.adapters.http.models.answers import Page, page
from extender.adapters.http.models.models import LABEL_SCHEMA
from extender.adapters.http.models.parameters import (
    NOT_AT_VERSION,
    IfMatch,
    IsDryRun,
    Limit,
    Namespace,
    Token,
    management,
    noun,
)
from extender.adapters.http.models.policy_bodies import (
    PolicyBody,
    PolicyPatch,
    PolicyToValidate,
    PolicyTypeView,
    PolicyView,
    policy_view,
)
from extender.adapters.http.problems import documented
from extender.app.contracts.api import PolicyCalls
from extender.app.contracts.errors import NotFound
from extender.app.contracts.kind import Identity
from extender.core.policies.policy_types import TYPES, PolicySpec
from extender.kube.names import require_label

router = noun("policies")
_WRITES = NOT_AT_VERSION | documented({409: "The policy or its namespace is being deleted"})


async def _calls(request: Request) -> PolicyCalls:
    return (await management(request)).policies


async def _name(
    namespace: Namespace, name: Annotated[str, Path(description="Of a policy", json_schema_extra=LABEL_SCHEMA)]
) -> Identity:
    return Identity(namespace, require_label("name", name))


Calls = Annotated[PolicyCalls, Depends(_calls)]
Name = Annotated[Identity, Depends(_name)]


def _show(response: Response, view: PolicyView) -> PolicyView:
    if view.version:
        response.headers["ETag"] = f'"{view.version}"'
    return view


@router.get("/policy-types")
async def list_policy_types() -> Page[PolicyTypeView]:
    """Every type of policy, with the JSON schema of its parameters and an example."""
    types = [
        PolicyTypeView(
            name=each,
            summary=policy_models.summary(each),
            parameters=dict(policy_models.schema(each)),
            example={"type": each, "parameters": dict(policy_models.example(each))},
        )
        for each in TYPES
    ]
    return Page(items=types, continue_=None)


@router.get("/namespaces/{ns}/policies")
async def list_policies(
    calls: Calls, namespace: Namespace, limit: Limit = 500, token: Token = None
) -> Page[PolicyView]:
    """The policies of a namespace."""
    return page(calls.list_policies(namespace), lambda state: state.name.name, policy_view, limit, token)


@router.post("/namespaces/{ns}/policies:validate")
async def validate_policy(calls: Calls, namespace: Namespace, body: PolicyToValidate) -> PolicyView:
    """Whether a policy like this would be accepted, and its status then. Changes nothing."""
    name = require_label("name", body.name) if body.name is not None else ""
    return policy_view(calls.judge_policy(Identity(namespace, name), policy_bodies.spec_of(body)))


@router.put("/namespaces/{ns}/policies/{name}", responses=_WRITES)
async def put_policy(
    calls: Calls, name: Name, body: PolicyBody, response: Response, if_match: IfMatch, dry_run: IsDryRun
) -> PolicyView:
    """Replaces the policy's spec, in force for the next decision. An invalid spec is refused, and the previous one
    stays."""
    spec = policy_bodies.spec_of(body)
    state = await calls.change_policy(name, lambda before: spec, if_version=if_match, dry_run=dry_run)
    return _show(response, policy_view(state))


@router.patch("/namespaces/{ns}/policies/{name}", responses=_WRITES, openapi_extra=policy_bodies.MERGE_PATCH)
async def patch_policy(
    calls: Calls, name: Name, body: PolicyPatch, response: Response, if_match: IfMatch, dry_run: IsDryRun
) -> PolicyView:
    """A JSON merge patch of its spec: null removes a field, lists are replaced. The result is checked as a
    whole."""

    def becomes(before: PolicySpec | None) -> PolicySpec:
        if before is None:
            raise NotFound("name", str(name), f"there is no policy {name} to change; create it with PUT")
        return policy_bodies.patched(before, body)

    state = await calls.change_policy(name, becomes, if_version=if_match, dry_run=dry_run)
    return _show(response, policy_view(state))


@router.get("/namespaces/{ns}/policies/{name}")
async def get_policy(calls: Calls, name: Name, response: Response) -> PolicyView:
    """One policy: its spec, what of it is in force, and why."""
    return _show(response, policy_view(calls.get_policy(name)))


@router.delete(
    "/namespaces/{ns}/policies/{name}",
    status_code=204,
    responses={
        202: {"model": PolicyView, "description": "It is not in force, but `finalizers` hold the object"},
        **NOT_AT_VERSION,
    },
)
async def delete_policy(calls: Calls, name: Name, if_match: IfMatch, dry_run: IsDryRun) -> Response:
    """Deletes the policy. Pods stay where they are; deleting what does not exist does nothing.

    202 if finalizers hold the object: it cannot be set again until they release it.
    """
    left = await calls.delete_policy(name, if_version=if_match, dry_run=dry_run)
    if left is None:
        return Response(status_code=204)
    return Response(policy_view(left).model_dump_json(), 202, media_type="application/json")
