"""The ask of a gang, and what each of its pods has to say under either approach.

A gang is a set of *bundles*, each the resources of one member. The pods are written once, without resources of their
own, and the ask completes them:

    ask = gang("train", size=8, each={"cpu": "4"})
    pods = [ask.requirement(i, Approach.EXTENDER).attach(pod(i)) for i in range(8)]

What is held by ghosts is asked for by `run.spec` instead of `ask`, see `adapters.kubernetes.extended_resource_gangs`.

| approach            | schedulerName      | the pod asks for                        | label and annotation |
|---------------------|--------------------|-----------------------------------------|----------------------|
| EXTENDER            | `escher`           | its bundle: cpu 4                       | gang, gang-min-member|
| LEDGER              | `escher-ledger`    | its bundle: cpu 4                       | gang, gang-min-member|
| EXTENDED_RESOURCES  | that of `scheduler`| 1 of its reservation key, and cpu 0     | gang, gang-min-member|

Under the last the cpu is held by a ghost, and counted once. The 0 says so to quotas and limit ranges, which want a
number or put in their own. The price: for want of a request the members run as BestEffort on a real node; and a ghost
that holds a device (nvidia.com/gpu) has it, where the member, who does not ask for it, is given none. The extender has
neither flaw.

A reservation key is `<domain>/<namespace>.<gang>-<bundle>-<run>`, unique per gang, bundle and *run*: a token of each
time that the gang is asked for, so that what a run before has left on a node lets nobody in. Whoever runs the gang
gives it (`with_run`), and the members are made from the ask that has it. It needs no number of the attempt, for nothing
is exported before all ghosts are bound, hence never twice; so members may exist before there is room, and wait. Ghosts,
which exist in every attempt, have its number in their names. With `one_key` all bundles, which must then be equal,
share `<domain>/<namespace>.<gang>-all-<run>`: any member may take any place, as a Job's single template needs it.

The domain is not `escher.dev`: in that one every key that the ledger does not know is drift, which the service, if one
runs in the cluster, removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from extender.core.gang_ask import GANG_GATE, GANG_LABEL, LARGEST_GANG, MIN_MEMBER
from extender.core.names import DOMAIN, GangKey, ephemeral_name
from extender.esl.base import PodRequirement
from extender.kube.names import InvalidName, ResourceKey, require_label
from extender.kube.quantities import count

APPLICATION_DOMAIN = f"app.{DOMAIN}"
"""Where applications keep what they set on nodes themselves, without the service."""

LONGEST_RUN = 12

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ZERO_IS_NONE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Of which 0 may be asked for wherever nothing may."""


class Approach(Enum):
    """Who matches; the value is the usual schedulerName."""

    EXTENDER = "escher"
    LEDGER = "escher-ledger"
    EXTENDED_RESOURCES = "escher-resources"


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A gang that is asked for; make one with `gang`."""

    gang: GangKey
    bundles: tuple[Mapping[str, str], ...]
    priority: int = 0
    """Whose turn comes first in LibSpace. It is not Kubernetes' priority: that is `placement["priorityClassName"]`."""
    one_key: bool = False
    placement: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Of the members' specs, what narrows their nodes: the ghosts must be where the members may be."""
    domain: str = APPLICATION_DOMAIN
    gated: bool = False
    """Whether the extender's scheduler is kept from the pods until there is room for the gang, see docs/gangs.md."""
    scheduler: str = Approach.EXTENDED_RESOURCES.value
    """The kube-scheduler of the ghosts, and of the members that follow them: any will do."""
    run: str = ""
    """The token of this run; empty: nobody runs it yet."""

    @property
    def size(self) -> int:
        return len(self.bundles)

    def key(self, bundle: int) -> ResourceKey:
        """The reservation of that bundle, as nodes and pods spell it."""
        tail = "all" if self.one_key else str(bundle)
        if self.run:
            tail = f"{tail}-{self.run}"
        return ephemeral_name(self.gang.namespace, f"{self.gang.name}-{tail}").key(self.domain)

    def with_run(self, run: str) -> GangSpec:
        """The ask of that run. Raises InvalidName where its keys would be too long, or the token is no label."""
        require_label("run", run, LONGEST_RUN)
        made = replace(self, run=run)
        made.key(self.size - 1)
        return made

    def requirement(self, bundle: int, approach: Approach) -> PodRequirement:
        """What the pod of that bundle has to say.

        Raises IndexError for a bundle that is not there, ValueError for members of ghosts that nobody runs yet.
        """
        held = self.bundles[bundle]
        reserved = approach is Approach.EXTENDED_RESOURCES
        if reserved and not self.run:
            raise ValueError(
                f"gang {self.gang}: nobody runs this ask yet, so that its members would wait for ever; make them from "
                "the `spec` of its run, or give it a token of its own with `run=`"
            )
        counted_once = {resource: "0" for resource in held if resource in _ZERO_IS_NONE}
        return PodRequirement(
            resources={**counted_once, self.key(bundle): "1"} if reserved else dict(held),
            labels={GANG_LABEL: self.gang.name},
            annotations={MIN_MEMBER: str(self.size)},
            scheduler_name=self.scheduler if reserved else approach.value,
            without=frozenset(held) if reserved else frozenset(),
            # Without the extender nobody would take it off: members wait for their reservation's key.
            gates=(GANG_GATE,) if self.gated and not reserved else (),
        )


def gang(
    name: str,
    size: int,
    each: Mapping[str, str] | Sequence[Mapping[str, str]],
    *,
    namespace: str = "default",
    priority: int = 0,
    one_key: bool = False,
    placement: Mapping[str, Any] | None = None,
    domain: str = APPLICATION_DOMAIN,
    gated: bool = False,
    scheduler: str = Approach.EXTENDED_RESOURCES.value,
    run: str = "",
) -> GangSpec:
    """The ask of `size` members that each need `each`, or each its own of a list.

    `run`: a token of the caller's own, a label of at most 12 characters that was never used for this gang before; left
    empty, whoever runs the gang gives one.

    Raises InvalidName, with limit and length where a reservation key would be too long; InvalidQuantity; ValueError.
    """
    require_label("namespace", namespace)
    require_label("gang", name)
    bundles = (dict(each),) * size if isinstance(each, Mapping) else tuple(dict(one) for one in each)
    if not 1 <= size <= LARGEST_GANG or len(bundles) != size:
        raise ValueError(
            f"gang {name!r}: size is {size} with {len(bundles)} bundles; write 1 to {LARGEST_GANG}, as many"
        )
    for bundle in bundles:
        if not bundle:
            raise ValueError(f"gang {name!r}: a bundle without resources holds nothing; write for example cpu: 1")
        for resource, quantity in bundle.items():
            count(resource, quantity)
            if resource.startswith(f"{domain}/"):
                raise InvalidName("resource", resource, f"is in {domain}, whose resources are set, not held by ghosts")
    if one_key and any(bundle != bundles[0] for bundle in bundles):
        raise ValueError(f"gang {name!r}: members that share one key must have equal bundles")
    spec = GangSpec(
        GangKey(namespace, name), bundles, priority, one_key, placement or _NOTHING, domain, gated, scheduler
    )
    if run:
        return spec.with_run(run)
    spec.key(size - 1)
    return spec
