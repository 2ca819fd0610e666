"""Checks of the resources on nodes against the EphemeralResources that define them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from extender.core.names import in_domain
from extender.doctor.facts import Facts, Json, Part, key_of, metadata_of, named, some, spec_of
from extender.doctor.findings import Check, Found, Severity

_SOON = timedelta(seconds=60)
_WRITER = "kubectl get node {} -o yaml --show-managed-fields, under managedFields"


def _has(node: Json, field: str) -> dict[str, str]:
    """Escher's keys in that field of the node status."""
    said = (node.get("status") or {}).get(field) or {}
    return {key: str(units) for key, units in said.items() if in_domain(key)}


def _condition(resource: Json) -> Json | None:
    """Its condition Ready; None: it has none yet."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == "Ready"), None)


def _ready(resource: Json) -> str | None:
    """The status of its condition Ready; None: it has none yet."""
    found = _condition(resource)
    return None if found is None else str(found.get("status"))


def _alive(facts: Facts) -> Iterator[Json]:
    """The EphemeralResources that are not being deleted."""
    return (each for each in facts.cluster.resources if not metadata_of(each).get("deletionTimestamp"))


def _units(resource: Json) -> dict[str, int]:
    """The desired units by node: of chosen nodes and of named ones."""
    chosen = (resource.get("status") or {}).get("nodes") or {}
    return {**chosen, **(spec_of(resource).get("nodes") or {})}


def _unheeded(facts: Facts) -> Iterator[Found]:
    for each in _alive(facts):
        created = metadata_of(each).get("creationTimestamp")
        if _ready(each) is None and created and facts.now - datetime.fromisoformat(created) > _SOON:
            wrong = f"created at {created}, it still has no condition Ready in its status"
            mend = "Start the service, or see its log: it may lack rights to EphemeralResources or their status."
            yield Found(f"EphemeralResource {named(each)}", wrong, mend)


def _over_quota(facts: Facts) -> Iterator[Found]:
    waiting: dict[str, list[str]] = {}
    for each in _alive(facts):
        said = _condition(each) or {}
        if said.get("status") == "False" and said.get("reason") == "QuotaExceeded":
            waiting.setdefault(metadata_of(each)["namespace"], []).append(str(said.get("message")))
    for namespace, reasons in waiting.items():
        wait = "1 EphemeralResource waits" if len(reasons) == 1 else f"{len(reasons)} EphemeralResources wait"
        wrong = f"{wait} for free quota: {reasons[0]}"
        mend = f"See escher quota --namespace {namespace}; delete some, or raise the quota in the settings (isolation)."
        yield Found(f"Namespace {namespace}", wrong, mend)


def _lacking(facts: Facts) -> Iterator[Found]:
    nodes = {named(each): each for each in facts.cluster.nodes}
    for resource in _alive(facts):
        if _ready(resource) != "True":
            continue
        key, apart = key_of(resource), []
        for name, units in _units(resource).items():
            there = nodes.get(name)
            if there is None or not units:
                continue
            capacity, allocatable = _has(there, "capacity").get(key), _has(there, "allocatable").get(key)
            if capacity == allocatable != str(units):
                apart.append(f"{name} ({capacity or 'none'}, not {units})")
        if apart:
            wrong = f"{key} has wrong units on {some(apart)}: a kubelet or another controller has reset it"
            mend = (
                f"If this persists, find what writes it ({_WRITER.format(apart[0].split()[0])}) and stop that; "
                "the service writes it again."
            )
            yield Found(f"EphemeralResource {named(resource)}", wrong, mend)


def _half(facts: Facts) -> Iterator[Found]:
    for node in facts.cluster.nodes:
        capacity, allocatable = _has(node, "capacity"), _has(node, "allocatable")
        for key in sorted({*capacity, *allocatable}):
            if capacity.get(key) != allocatable.get(key):
                wrong = (
                    f"{key} is {capacity.get(key, 'missing')} in capacity and {allocatable.get(key, 'missing')} in "
                    "allocatable: kube-scheduler uses one, a kubelet the other"
                )
                mend = f"Make its writer write both; find the writer by {_WRITER.format(named(node))}."
                yield Found(f"Node {named(node)}", wrong, mend)


def _left_over(facts: Facts) -> Iterator[Found]:
    wanted = {(name, key_of(each)) for each in facts.cluster.resources for name in _units(each)}
    by_key: dict[str, list[str]] = {}
    for node in facts.cluster.nodes:
        for key in {**_has(node, "capacity"), **_has(node, "allocatable")}:
            if (named(node), key) not in wanted:
                by_key.setdefault(key, []).append(named(node))
    for key, names in sorted(by_key.items()):
        wrong = f"{key} is on {some(names)}, but no EphemeralResource defines it"
        mend = (
            "If no application set it without the service, remove it: "
            f'kubectl patch node {names[0]} --subresource=status --type=merge -p \'{{"status": {{"capacity": '
            f'{{"{key}": null}}, "allocatable": {{"{key}": null}}}}}}\''
        )
        yield Found(f"Node {names[0]}", wrong, mend)


CHECKS = (
    Check(
        "resource-unheeded",
        "an EphemeralResource without a condition Ready",
        _unheeded,
        (Part.RESOURCES,),
    ),
    Check(
        "quota-exceeded",
        "EphemeralResources that wait for free quota of their namespace",
        _over_quota,
        (Part.RESOURCES,),
        Severity.NOTE,
    ),
    Check(
        "status-reset",
        "nodes that lack units of an EphemeralResource: a kubelet or another controller resets them",
        _lacking,
        (Part.NODES, Part.RESOURCES),
    ),
    Check("status-half", "an Escher resource that differs between capacity and allocatable", _half, (Part.NODES,)),
    Check(
        "left-over",
        "an Escher resource on nodes without an EphemeralResource",
        _left_over,
        (Part.NODES, Part.RESOURCES),
        Severity.NOTE,
    ),
)
