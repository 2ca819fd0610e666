"""Policy rules: refuses errors and unsupported parts in MutatingAdmissionPolicies and bindings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubesim.apiserver import cel
from kubesim.apiserver.cel.syntax import not_here
from kubesim.apiserver.cel.types import Type
from kubesim.apiserver.machinery import metadata
from kubesim.apiserver.machinery.failures import Problem, duplicate, forbidden_field, missing, unsupported, wrong
from kubesim.apiserver.schemas.policy_expressions import APPLIED, CONDITION, PATCH, ready
from kubesim.kinds import Json, Kind

APPLY, JSON_PATCH = "ApplyConfiguration", "JSONPatch"
MEMBERS: dict[str, tuple[str, Type]] = {APPLY: ("applyConfiguration", APPLIED), JSON_PATCH: ("jsonPatch", PATCH)}
"""By patchType: the field of the expression, and the type of its value."""

_FAILURE = ("Fail", "Ignore")
_REINVOCATION = ("Never", "IfNeeded")
_MATCHING = ("Exact", "Equivalent")
_RULES: dict[str, tuple[str, ...]] = {
    "apiGroups": ("",),
    "apiVersions": ("v1", "*"),
    "operations": ("CREATE",),
    "resources": ("pods",),
}
"""The only requests that a policy can match: creation of pods."""
_SELECTING = ("namespaceSelector", "objectSelector", "excludeResourceRules")
_NARROWING = ("resourceRules", *_SELECTING)


def completed(policy: Json) -> Json:
    """The policy with the defaults of kube-apiserver."""
    spec = {"failurePolicy": "Fail", **(policy.get("spec") or {})}
    if "matchConstraints" in spec:
        spec["matchConstraints"] = _completed_matches(spec["matchConstraints"])
    return {**policy, "spec": spec}


def completed_binding(binding: Json) -> Json:
    spec = dict(binding.get("spec") or {})
    if "matchResources" in spec:
        spec["matchResources"] = _completed_matches(spec["matchResources"])
    return {**binding, "spec": spec}


def _completed_matches(matches: Json) -> Json:
    done = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, **matches}
    for key in ("resourceRules", "excludeResourceRules"):
        if key in done:
            done[key] = [{"scope": "*", **each} for each in done[key]]
    return done


def of_new(kind: Kind, policy: Json) -> tuple[Json, list[Problem]]:
    return policy, list(_problems(policy["spec"]))


def of_changed(policy: Json, old: Json) -> tuple[Json, list[Problem]]:
    return policy, list(_problems(policy["spec"]))


def of_new_binding(kind: Kind, binding: Json) -> tuple[Json, list[Problem]]:
    return binding, list(_binding_problems(binding["spec"]))


def of_changed_binding(binding: Json, old: Json) -> tuple[Json, list[Problem]]:
    return binding, list(_binding_problems(binding["spec"]))


def _problems(spec: Json) -> Iterator[Problem]:
    for key in ("paramKind", "variables"):
        if spec.get(key):
            yield _not_here(f"spec.{key}", spec[key])
    if spec["failurePolicy"] not in _FAILURE:
        yield unsupported("spec.failurePolicy", spec["failurePolicy"], _FAILURE)
    again = spec.get("reinvocationPolicy")
    if not again:
        yield missing("spec.reinvocationPolicy")
    elif again not in _REINVOCATION:
        yield unsupported("spec.reinvocationPolicy", again, _REINVOCATION)
    elif again != "Never":
        yield _not_here("spec.reinvocationPolicy", again)
    if not spec.get("matchConstraints"):
        yield missing("spec.matchConstraints")
    else:
        yield from _match_problems(spec["matchConstraints"])
    yield from _condition_problems(spec.get("matchConditions") or ())
    if not spec.get("mutations"):
        yield missing("spec.mutations", "mutations must contain at least one item")
    for at, each in enumerate(spec.get("mutations") or ()):
        yield from _mutation_problems(each, f"spec.mutations[{at}]")


def _match_problems(matches: Json) -> Iterator[Problem]:
    where = "spec.matchConstraints"
    if matches["matchPolicy"] not in _MATCHING:
        yield unsupported(f"{where}.matchPolicy", matches["matchPolicy"], _MATCHING)
    for key in _SELECTING:
        if matches.get(key):
            yield _not_here(f"{where}.{key}", matches[key])
    if not matches.get("resourceRules"):
        yield missing(f"{where}.resourceRules")
    for at, rule in enumerate(matches.get("resourceRules") or ()):
        there = f"{where}.resourceRules[{at}]"
        for key, accepted in _RULES.items():
            if not rule.get(key):
                yield missing(f"{there}.{key}")
            for number, each in enumerate(rule.get(key) or ()):
                if each not in accepted:
                    yield _not_here(f"{there}.{key}[{number}]", each)
        if rule.get("resourceNames"):
            yield _not_here(f"{there}.resourceNames", rule["resourceNames"])
        if rule["scope"] not in ("*", "Namespaced"):
            yield _not_here(f"{there}.scope", rule["scope"])


def _condition_problems(conditions: Sequence[Json]) -> Iterator[Problem]:
    seen = set()
    for at, each in enumerate(conditions):
        where, name = f"spec.matchConditions[{at}]", each.get("name")
        if not name:
            yield missing(f"{where}.name")
        elif name in seen:
            yield duplicate(f"{where}.name", name)
        else:
            yield from (wrong(f"{where}.name", name, why) for why in metadata.qualified_name_faults(name))
        seen.add(name)
        yield from _expression_problems(each.get("expression"), CONDITION, f"{where}.expression")


def _mutation_problems(mutation: Json, where: str) -> Iterator[Problem]:
    of_type = mutation.get("patchType")
    if not of_type:
        yield missing(f"{where}.patchType")
    elif of_type not in MEMBERS:
        yield unsupported(f"{where}.patchType", of_type, tuple(MEMBERS))
    for each, (member, wanted) in MEMBERS.items():
        there = f"{where}.{member}"
        if each == of_type:
            if member not in mutation:
                yield missing(there, f"must be specified when patchType is {of_type}")
            else:
                yield from _expression_problems(mutation[member].get("expression"), wanted, f"{there}.expression")
        elif member in mutation:
            yield forbidden_field(there, f"must not be specified when patchType is {of_type or 'missing'}")


def _expression_problems(text: str | None, wanted: Type, where: str) -> Iterator[Problem]:
    if not text or not text.strip():
        yield missing(where, "expression is not specified")
        return
    try:
        ready(text, wanted)
    except cel.Refused as error:
        yield wrong(where, text, f"compilation failed: {error}")


def _binding_problems(spec: Json) -> Iterator[Problem]:
    if not spec.get("policyName"):
        yield missing("spec.policyName")
    if spec.get("paramRef"):
        yield _not_here("spec.paramRef", spec["paramRef"])
    for key in _NARROWING:
        if value := (spec.get("matchResources") or {}).get(key):
            yield _not_here(f"spec.matchResources.{key}", value)


def _not_here(where: str, value: Any) -> Problem:
    return wrong(where, value, str(not_here("it")))
