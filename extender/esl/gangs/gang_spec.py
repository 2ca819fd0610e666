"""The ask of a gang, and what each of its pods has to carry under each approach.

A gang is a set of *bundles*, each the resources of one member. The pods are written once, without resources of their
own, and the ask completes them:

    ask = gang("train", size=8, each={"cpu": "4"})
    pods = [ask.requirement(i, Approach.EXTENDER).attach(pod(i)) for i in range(8)]

Under EXTENDED_RESOURCES, use `run.spec` instead of `ask`, see `adapters.kubernetes.appspace.extended_resource_gangs`.

| approach            | schedulerName      | the pod asks for                        | label and annotation |
|---------------------|--------------------|-----------------------------------------|----------------------|
| EXTENDER            | `escher`           | its bundle: cpu 4                       | gang, gang-min-member|
| LEDGER              | `escher-ledger`    | its bundle: cpu 4                       | gang, gang-min-member|
| EXTENDED_RESOURCES  | that of `scheduler`| 1 of its reservation key, and cpu 0     | gang, gang-min-member|

Under the last, a ghost holds the cpu, which is counted once. The explicit 0 is for quotas and limit ranges, which
require a number or insert their own. The price: without a request, members run as BestEffort on a real node. And a
ghost that holds a device (nvidia.com/gpu) gets it, but the member, which does not ask for it, does not. The extender
has neither flaw.

A reservation key is `<domain>/<namespace>.<gang>-<bundle>-<run>`, unique per gang, bundle and *run*. A run's token is
new each time that the gang is asked for. So what a former run left on a node lets no member in. The component that runs
the gang gives the token (`with_run`); members are made from the ask that has it. A key needs no attempt number: nothing
is exported before all ghosts are bound, hence never twice. So members may exist before there is room, and wait. Ghosts
exist in every attempt and have its number in their names. With `one_key` all bundles must be equal. They share
`<domain>/<namespace>.<gang>-all-<run>`: any member may take any place, as a Job's single template needs it.

The domain is not `escher.dev`: there, keys unknown to the ledger are drift, which the service removes where it runs.
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
"""The domain of resources that applications set on nodes themselves, without the service."""

LONGEST_RUN = 12

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ZERO_IS_NONE = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Resources for which a pod may request 0 wherever it may request none."""


class Approach(Enum):
    """Which component matches pods to resources; the value is the usual schedulerName."""

    EXTENDER = "escher"
    LEDGER = "escher-ledger"
    EXTENDED_RESOURCES = "escher-resources"


@dataclass(frozen=True, slots=True)
class GangSpec:
    """A gang that is asked for; make one with `gang`."""

    gang: GangKey
    bundles: tuple[Mapping[str, str], ...]
    priority: int = 0
    """Order of turns in LibSpace. Kubernetes' priority is `placement["priorityClassName"]`."""
    one_key: bool = False
    placement: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What narrows the nodes in the members' pod specs: ghosts need nodes that members may use."""
    domain: str = APPLICATION_DOMAIN
    gated: bool = False
    """Whether a gate keeps pods from the scheduler until the gang has room, see docs/gangs.md."""
    scheduler: str = Approach.EXTENDED_RESOURCES.value
    """The kube-scheduler of the ghosts, and of the members that follow them: any will do."""
    run: str = ""
    """The token of this run; empty: no component runs it yet."""

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
        """The ask of that run. Raises InvalidName for a bad token or too long keys."""
        require_label("run", run, LONGEST_RUN)
        made = replace(self, run=run)
        made.key(self.size - 1)
        return made

    def requirement(self, bundle: int, approach: Approach) -> PodRequirement:
        """What the pod of that bundle has to carry.

        Raises IndexError for an unknown bundle, ValueError under EXTENDED_RESOURCES for an ask without a run.
        """
        held = self.bundles[bundle]
        reserved = approach is Approach.EXTENDED_RESOURCES
        if reserved and not self.run:
            raise ValueError(
                f"gang {self.gang}: this ask does not run yet, so its members would wait forever; create them from "
                "the `spec` of its run, or give it its own token with `run=`"
            )
        counted_once = {resource: "0" for resource in held if resource in _ZERO_IS_NONE}
        return PodRequirement(
            resources={**counted_once, self.key(bundle): "1"} if reserved else dict(held),
            labels={GANG_LABEL: self.gang.name},
            annotations={MIN_MEMBER: str(self.size)},
            scheduler_name=self.scheduler if reserved else approach.value,
            without=frozenset(held) if reserved else frozenset(),
            # Without the extender no component would remove the gate: members wait for their reservation's key.
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
    """The ask of `size` members that each need `each`, or each its own item of a list.

    `run`: a token of the caller's own, a label of at most 12 characters that was never used for this gang before. If
    empty, the component that runs the gang gives one.

    Raises InvalidName, with limit and length where a reservation key would be too long; InvalidQuantity; ValueError.
    """
    require_label("namespace", namespace)
    require_label("gang", name)
    bundles = (dict(each),) * size if isinstance(each, Mapping) else tuple(dict(one) for one in each)
    if not 1 <= size <= LARGEST_GANG or len(bundles) != size:
        raise ValueError(
            f"gang {name!r}: size is {size} with {len(bundles)} bundles; write equal numbers from 1 to {LARGEST_GANG}"
        )
    for bundle in bundles:
        if not bundle:
            raise ValueError(f"gang {name!r}: a bundle has no resources; write for example cpu: 1")
        for resource, quantity in bundle.items():
            count(resource, quantity)
            if resource.startswith(f"{domain}/"):
                raise InvalidName("resource", resource, f"is in {domain}, whose resources ghosts cannot hold")
    if one_key and any(bundle != bundles[0] for bundle in bundles):
        raise ValueError(f"gang {name!r}: members that share one key must have equal bundles")
    spec = GangSpec(
        GangKey(namespace, name), bundles, priority, one_key, placement or _NOTHING, domain, gated, scheduler
    )
    if run:
        return spec.with_run(run)
    spec.key(size - 1)
    return spec
