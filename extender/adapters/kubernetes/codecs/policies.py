"""Policies: reads and writes the JSON of the custom resource EscherPolicy (deploy/crds).

It translates parameter names between Kubernetes' spelling and Escher's. It does not check the parameters of the type.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
from msgspec import Raw

from extender.adapters.kubernetes.codecs.schema import Declaration, Shape
from extender.adapters.spelling import camel
from extender.core.policies.policy_types import TYPES, PodSelector, PolicySpec
from extender.kube.label_match import LabelRequirement
from extender.kube.nesting import Decoder, shallow

KIND, PLURAL = "EscherPolicy", "escherpolicies"


_THEIRS = {each.name: camel(each.name) for kind in TYPES.values() for each in fields(kind)}
_OURS = {theirs: ours for ours, theirs in _THEIRS.items()}


class _Requirement(Shape):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(Shape):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None


class _Spec(Shape):
    type: str
    parameters: dict[str, Any] | None = None
    selector: _Selector | None = None


_specs = Decoder(_Spec)
_DEEPEST = 32
"""Most levels of a spec: parameters of any value are compared and written level by level."""
_MOST_PARTS = 10_000
"""Most lists, objects and texts in a spec: the longest sensible spec has about 7,000."""


class Policies(Declaration[PolicySpec]):
    """`schema.Schema` of EscherPolicy."""

    def __init__(self) -> None:
        super().__init__(KIND, PLURAL, PolicySpec)

    def decode(self, said: Raw) -> PolicySpec:
        text = bytes(said)
        levels = text.count(b"[") + text.count(b"{")
        if (parts := levels + text.count(b'"') // 2) > _MOST_PARTS:
            raise msgspec.ValidationError(f"Has {parts} lists, objects and texts; at most {_MOST_PARTS} are read")
        spec = _specs.decode(shallow(text, _DEEPEST) if levels > _DEEPEST else text)
        parameters = spec.parameters or {}
        if strange := next((name for name in parameters if name in _THEIRS and name not in _OURS), None):
            raise msgspec.ValidationError(f"Unknown name, write {_THEIRS[strange]} - at `$.parameters.{strange}`")
        return PolicySpec(
            spec.type,
            {_OURS.get(name, name): value for name, value in parameters.items()},
            None if spec.selector is None else _to_selector(spec.selector),
        )

    def encode(self, spec: PolicySpec | None) -> Any:
        if spec is None:
            return {}
        said: dict[str, Any] = {"type": spec.type}
        if spec.parameters:
            said["parameters"] = {_THEIRS.get(name, name): value for name, value in spec.parameters.items()}
        if spec.selector is not None:
            said["selector"] = _selector_json(spec.selector)
        return said


def _to_selector(said: _Selector) -> PodSelector:
    expressions = (LabelRequirement(each.key, each.operator, tuple(each.values or ())) for each in _all(said))
    return PodSelector(said.match_labels or {}, tuple(expressions))


def _all(said: _Selector) -> list[_Requirement]:
    return said.match_expressions or []


def _selector_json(selector: PodSelector) -> dict[str, Any]:
    """Empty if the selector matches all pods."""
    said: dict[str, Any] = {"matchLabels": dict(selector.match_labels)} if selector.match_labels else {}
    if selector.match_expressions:
        said["matchExpressions"] = [_requirement_json(each) for each in selector.match_expressions]
    return said


def _requirement_json(requirement: LabelRequirement) -> dict[str, Any]:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
