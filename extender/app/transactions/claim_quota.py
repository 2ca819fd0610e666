"""Claim quota: which claims a namespace may not have, by its scheduling domain or its quota.

If its domain narrows names, it may claim its own resources and shared ones, if their names match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extender.app.cache.cache import Cache
from extender.app.cache.claims import is_claim, namespace_of, owning
from extender.core.ledger.ledger import Holder, Holding
from extender.core.names import in_domain
from extender.core.tenancy.isolation import Allowance, Counted, Over
from extender.kube.names import ResourceKey


def outside_of(claim: Holding, cache: Cache) -> tuple[str, str] | None:
    """Returns the field of the claim that is outside of the domain, and why; None if none is."""
    namespace = namespace_of(claim) or ""
    allowance, node = cache.isolation.of(namespace), cache.nodes[claim.node]
    if not allowance.has_node(node.labels):
        said = f"node {claim.node} is outside of the scheduling domain of {namespace}"
        return "node", f"{said}: name a node that has {allowance.told_nodes()}"
    if (foreign := cache.tenancy.foreign(namespace, claim.units)) is not None:
        return "units", f"{foreign} belongs to another namespace, which does not export it to {namespace}"
    domain = cache.ledger.capacity.domain
    for key in claim.units:
        if allowance.names is not None and in_domain(key, domain) and not _may_claim(key, namespace, allowance):
            allowed = ", ".join(allowance.names) or "none"
            said = f"{key} is outside of the scheduling domain of {namespace}"
            return "units", f"{said}: it may claim its own resources, and shared ones, whose names match {allowed}"
    return None


def _may_claim(key: ResourceKey, namespace: str, allowance: Allowance) -> bool:
    whose, dot, name = key.partition("/")[2].partition(".")
    return allowance.has_name(name) and whose == namespace if dot else allowance.has_name(whose)


def too_many(claims: Mapping[int, Holding], releasing: Sequence[Holder], cache: Cache) -> Iterator[tuple[int, Over]]:
    """Yields the claims beyond their namespace's quota, if `releasing` are released."""
    ledger = cache.ledger
    freed = [held for holder in releasing if (held := ledger.holding(holder)) is not None and is_claim(held)]
    having: dict[str, int] = {}
    for index, claim in claims.items():
        namespace = namespace_of(claim) or ""
        if namespace not in having:
            there = ledger.totals.places.get(owning(namespace), 0)
            having[namespace] = there - sum(namespace_of(held) == namespace for held in freed)
        replaces = ledger.holding(claim.holder) is not None and claim.holder not in releasing
        over = cache.isolation.over(namespace, Counted.CLAIMS, int(not replaces), having[namespace])
        if over is not None:
            yield index, over
        else:
            having[namespace] += not replaces
