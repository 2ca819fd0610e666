"""Drawing: draws good and bad policies, changes, and pods with or without a match; seeded."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtests.policy_changes.rules import POLICY, ZONE, Json, Policies, Policy
from loadtests.shared.pods import EXTENDER, pod

NAMED = ("p0", "p1", "p2", "p3")
"""Policies that pods name; those of SELECTING find their pods by label."""
SELECTING = ("s0", "s1")
NAMES = (*NAMED, *SELECTING)
TIER, OF_YARD = "tier", "policy-changes/yard"
DATA = ("d0", "d1")
LARGEST_GANG = 3

_SELECTORS: Mapping[str, Json] = {
    "s0": {"match_labels": {TIER: "web"}},
    "s1": {"match_expressions": [{"key": TIER, "operator": "In", "values": ["db", "cache"]}]},
}


@dataclass(frozen=True)
class Change:
    """A call that changes a policy, and what is then in force; None if it is deleted."""

    method: str
    name: str
    body: Json | None
    becomes: Policy | None


@dataclass(frozen=True)
class Refused:
    """A call that must be refused with that status, and change nothing."""

    method: str
    name: str
    body: Json
    status: int
    if_match: str = ""


def policies_for(name: str) -> list[Policy]:
    """Returns all policies that may be in force with that name."""
    others = [each for each in NAMES if each != name]
    selector = _SELECTORS.get(name)
    kinds: list[tuple[str, Json]] = [
        ("anti-affinity", {}),
        ("anti-affinity", {"topology_key": ZONE}),
        ("anti-affinity", {"away_from": [others[0]]}),
        ("anti-affinity", {"away_from": others[1:3], "topology_key": ZONE}),
        ("balance", {"tasks": 4}),
        ("balance", {"tasks": 8}),
        ("balance", {"max_skew": 1}),
        ("balance", {"max_skew": 2, "topology_key": ZONE}),
        ("co-location", {}),
        ("co-location", {"topology_key": ZONE}),
        *(("data-locality", {"data": [data]}) for data in DATA),
        ("data-locality", {"data": [DATA[0]], "required": False}),
        ("bin-packing", {}),
        ("objective", {"label": "example.com/rank"}),
        ("priority", {"priority": 3}),
        ("fair-share", {"weight": 2}),
    ]
    return [Policy(kind, parameters, selector) for kind, parameters in kinds]


def put(name: str, policy: Policy) -> Change:
    body = {"type": policy.type, "parameters": policy.parameters, "selector": policy.selector}
    return Change("PUT", name, body, policy)


def delete(name: str) -> Change:
    return Change("DELETE", name, None, None)


def patch(name: str, now: Policy, rng: random.Random) -> Change | None:
    """Returns a patch that changes or removes some parameters of the policy; None if none can."""
    alike = [each for each in policies_for(name) if each.type == now.type and each.parameters != now.parameters]
    if not alike:
        return None
    becomes = rng.choice(alike)
    removed = dict.fromkeys(now.parameters.keys() - becomes.parameters.keys())
    changed = {key: value for key, value in becomes.parameters.items() if now.parameters.get(key) != value}
    return Change("PATCH", name, {"parameters": {**removed, **changed}}, becomes)


def change(rng: random.Random, policies: Policies) -> Change:
    name = rng.choice(NAMES)
    now, kind = policies.get(name), rng.random()
    if now is not None and kind < 0.2:
        return delete(name)
    if now is not None and kind < 0.5 and (patched := patch(name, now, rng)) is not None:
        return patched
    good = policies_for(name)
    return put(name, rng.choice([each for each in good if now is None or not _same(each, now)]))


def all_changes(policies: Policies) -> list[Change]:
    """Returns every change that could be made now."""
    found = [delete(name) for name in policies]
    for name in NAMES:
        now = policies.get(name)
        found += [put(name, each) for each in policies_for(name) if now is None or not _same(each, now)]
    return found


def _same(one: Policy, other: Policy) -> bool:
    return (one.type, one.parameters, one.selector) == (other.type, other.parameters, other.selector)


def bad(rng: random.Random, policies: Policies) -> Refused:
    """Returns a change that is refused, so that what is in force stays."""
    name = rng.choice(NAMES)
    bodies: Sequence[Json] = (
        {"type": "anti-affinty"},
        {"type": "balance", "parameters": {"max_skew": 0}},
        {"type": "balance", "parameters": {"size": 2}},
        {"type": "data-locality"},
        {"type": "anti-affinity", "parameters": {"away_from": ["Not A Name"]}},
        {"type": "bin-packing", "selector": {"match_expressions": [{"key": "a", "operator": "In"}]}},
    )
    if name in policies and rng.random() < 0.4:
        return rng.choice(
            (
                Refused("PATCH", name, {"type": "nothing-like-it"}, 422),
                Refused("PATCH", name, {"parameters": {"topology_key": ""}}, 422),
                Refused("PUT", name, {"type": "bin-packing"}, 412, if_match="1"),
            )
        )
    return Refused("PUT", name, dict(rng.choice(bodies)), 422)


def unit(rng: random.Random, yard: str, number: int) -> list[Json]:
    """Returns a pod, or a gang of two or three equal pods: with named policies, and with labels."""
    size = rng.choice((1, 1, 1, 1, 2, LARGEST_GANG))
    named = rng.choice(((), *((name,) for name in NAMED), *((name,) for name in NAMED), NAMED[:2], NAMED[1:3]))
    tier = rng.choice(("", "", "web", "db", "cache"))
    gang = f"g{number}" if size > 1 else None
    names = [f"g{number}-{member}" for member in range(size)] if size > 1 else [f"u{number}"]
    said = {POLICY: ",".join(named)} if named else {}
    made = [
        pod(
            name,
            EXTENDER,
            gang=gang,
            quorum=size if gang else None,
            cpu="10m",
            annotations=said,
            selector={OF_YARD: yard},
        )
        for name in names
    ]
    for each in made:
        each["metadata"]["labels"] |= {TIER: tier} if tier else {}
    return made
