"""Policy bodies: reads and shows the JSON of policies in the management API.

The models here check the structure. `policy_models`, which has every type, checks the parameters. OpenAPI shows both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, Field, JsonValue, StrictStr, ValidationError

from extender.adapters import policy_models
from extender.adapters.http.models.answers import Answer
from extender.adapters.http.models.models import LABEL_SCHEMA, Body
from extender.adapters.http.problems import Problem, ProblemKind
from extender.adapters.policy_models import MOST_REQUIREMENTS, MOST_VALUES, BadPolicySpec
from extender.app.contracts.policy_state import PolicyState
from extender.core.policies.policy_types import TYPES, PodSelector, PolicyInForce, PolicySpec, type_of
from extender.kube.label_match import LabelRequirement, Selector


class RequirementBody(Body):
    """One requirement of a selector. In and NotIn have values, Exists and DoesNotExist none."""

    key: Annotated[StrictStr, Field(examples=["app"], max_length=317)]
    operator: Annotated[StrictStr, Field(json_schema_extra={"enum": [*policy_models.OPERATORS]}, examples=["In"])]
    values: Annotated[Sequence[StrictStr], Field(max_length=MOST_VALUES, examples=[["web"]])] = ()


class SelectorBody(Body):
    """The pods of the namespace that have all labels and meet all requirements. {} selects all."""

    match_labels: Annotated[
        dict[str, StrictStr], Field(default_factory=dict, max_length=MOST_REQUIREMENTS, examples=[{"app": "web"}])
    ]
    match_expressions: Annotated[Sequence[RequirementBody], Field(max_length=MOST_REQUIREMENTS)] = ()


def _discriminated(schema: dict[str, Any]) -> None:
    """Replaces the schema by one alternative for each policy type, with its parameters."""
    told = {name: schema[name] for name in ("title", "description") if name in schema} | {"examples": _EXAMPLES}
    members: dict[str, Any] = schema.pop("properties")
    schema.clear()
    schema.update(told, oneOf=[_of_type(each, members) for each in TYPES])


def _of_type(kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {key: value for key, value in policy_models.schema(kind).items() if key != "title"}
    required = ["type", "parameters"] if policy_models.required(kind) else ["type"]
    properties = {**members, "type": {"type": "string", "const": kind, "title": "Type"}, "parameters": parameters}
    return {
        "title": kind,
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


_EXAMPLES: list[JsonValue] = [
    {"type": "anti-affinity", "parameters": {"topology_key": "topology.kubernetes.io/zone"}},
    {"type": "balance", "parameters": {"tasks": 4}, "selector": {"match_labels": {"app": "web"}}},
]


class PolicyBody(Body):
    """A policy: its type, its parameters, and the pods that it matches besides those that name it."""

    model_config = ConfigDict(json_schema_extra=_discriminated, title="PolicyBody")

    type: Annotated[StrictStr, Field(description="A type from /v1/policy-types")]
    parameters: Annotated[dict[str, JsonValue], Field(default_factory=dict)]
    selector: Annotated[
        SelectorBody | None, Field(description="Null: only pods that name it by the annotation escher.dev/policy")
    ] = None


class PolicyToValidate(PolicyBody):
    """A policy and its intended name; a policy that leads back to itself is refused."""

    name: Annotated[StrictStr | None, Field(json_schema_extra=LABEL_SCHEMA)] = None


class PolicyPatch(Body):
    """The changes. Null removes a field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"parameters": {"tasks": 8}}]})

    type: StrictStr | None = None
    parameters: dict[str, JsonValue] | None = None
    selector: dict[str, JsonValue] | None = None


MERGE_PATCH = {
    "requestBody": {
        "required": True,
        "content": {
            each: {"schema": {"$ref": "#/components/schemas/PolicyPatch"}}
            for each in ("application/json", "application/merge-patch+json")
        },
    }
}
"""The request body with both media types, for OpenAPI."""


def spec_of(body: PolicyBody) -> PolicySpec:
    """Returns the policy in the core's types, with all values checked. Raises Problem."""
    selector = None if body.selector is None else _to_selector(body.selector)
    spec = PolicySpec(body.type, body.parameters, selector)
    try:
        policy_models.in_force(spec)
    except BadPolicySpec as error:
        faults = [{"field": each.field, "detail": each.detail} for each in error.faults]
        raise Problem(
            ProblemKind.INVALID, faults[0]["detail"], field=faults[0]["field"], extra={"errors": faults}
        ) from None
    return spec


def patched(before: PolicySpec, patch: PolicyPatch) -> PolicySpec:
    """Returns the policy after a merge patch (RFC 7396). Raises Problem, RequestValidationError."""
    said = spec_json(before)
    merged = _merge(said, patch.model_dump(exclude_unset=True))
    try:
        body = PolicyBody.model_validate(merged)
    except ValidationError as error:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in error.errors()]) from None
    return spec_of(body)


def _merge(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged


def _to_selector(body: SelectorBody) -> PodSelector:
    expressions = (LabelRequirement(each.key, each.operator, tuple(each.values)) for each in body.match_expressions)
    return PodSelector(body.match_labels, tuple(expressions))


# -- answers -----------------------------------------------------------------------------------------------------


class PolicyTypeView(Answer):
    """A type of policy."""

    name: Annotated[str, Field(examples=["anti-affinity"])]
    summary: str
    parameters: Annotated[dict[str, Any], Field(description="JSON schema of the parameters")]
    example: Annotated[dict[str, Any], Field(description="A policy of this type")]


class InForceView(Answer):
    """What is in force of a policy, with every parameter."""

    type: str
    parameters: dict[str, Any]
    selector: Annotated[
        list[dict[str, Any]] | None, Field(description="Requirements; all must hold. []: every pod, null: no pod")
    ]


class PolicyView(Answer):
    """A policy's spec, and what of it is in force."""

    namespace: str
    name: str
    type: Annotated[str | None, Field(description="Null if the object is unreadable")]
    parameters: dict[str, Any]
    selector: dict[str, Any] | None
    version: Annotated[str, Field(description="For If-Match; empty if it is not stored")]
    ready: Annotated[bool, Field(description="Whether its spec is in force")]
    reason: Annotated[str, Field(examples=["InForce"])]
    message: Annotated[str, Field(description="Why it is in force or not, for people")]
    in_force: Annotated[InForceView | None, Field(description="In force: of an invalid policy, its previous spec")]
    pods: Annotated[int | None, Field(description="Number of pods that it matches now; null: not in force")]
    finalizers: list[str]


def policy_view(state: PolicyState) -> PolicyView:
    said = {} if state.spec is None else spec_json(state.spec)
    policy = state.in_force
    return PolicyView(
        namespace=state.name.namespace,
        name=state.name.name,
        type=said.get("type"),
        parameters=said.get("parameters", {}),
        selector=said.get("selector"),
        version=state.version,
        ready=state.ready,
        reason=state.reason,
        message=state.message,
        in_force=None
        if policy is None
        else InForceView(
            type=type_of(policy.parameters),
            parameters=policy_models.shown(policy.parameters),
            selector=_requirements(policy.selector),
        ),
        pods=state.pods,
        finalizers=list(state.finalizers),
    )


def spec_json(spec: PolicySpec) -> dict[str, Any]:
    """Returns the body of a PUT of the policy; without `selector` if it has none."""
    said: dict[str, Any] = {"type": spec.type, "parameters": dict(spec.parameters)}
    if spec.selector is not None:
        labels, expressions = spec.selector.match_labels, spec.selector.match_expressions
        said["selector"] = {"match_labels": dict(labels)} if labels else {}
        if expressions:
            said["selector"]["match_expressions"] = _requirements(expressions)
    return said


def in_force_json(policy: PolicyInForce) -> dict[str, Any]:
    """Returns the body of a PUT that would bring this policy into force."""
    said = {"type": type_of(policy.parameters), "parameters": policy_models.shown(policy.parameters)}
    if policy.selector is not None:
        said["selector"] = {"match_expressions": _requirements(policy.selector)}
    return said


def _requirements(selector: Selector) -> list[dict[str, Any]] | None:
    if selector is None:
        return None
    return [{"key": each.key, "operator": each.operator, "values": list(each.values)} for each in selector]
