"""Asking: builds a client's asks, in its own namespace. Sends nothing."""

from __future__ import annotations

from collections.abc import Mapping

from escher_k8s.management import asks
from escher_k8s.management.asks import Ask, SchedulerName


class Asking:
    """`namespace`: of every ask that names no other."""

    namespace: str

    def gang(
        self,
        name: str,
        size: int,
        each: Mapping[str, str] | None = None,
        *,
        scheduler_name: SchedulerName = "escher",
        timeout_seconds: int | None = None,
        gated: bool = False,
        namespace: str | None = None,
    ) -> Ask:
        """What each pod of a gang has to carry, so that `size` of them are placed together or none.

        `each`: what one member needs, as Kubernetes' quantities; None: as in its manifest. Members that differ get an
        ask each, of the same name and size. `timeout_seconds`: how long members wait for the others. `gated`:
        kube-scheduler does not look at them before there is room. Raises ValueError, with field and value."""
        return asks.gang(
            namespace or self.namespace,
            name,
            size,
            each,
            scheduler_name=scheduler_name,
            timeout_seconds=timeout_seconds,
            gated=gated,
        )

    def resource_request(self, name: str, units: int = 1, *, shared: bool = False, namespace: str | None = None) -> Ask:
        """What a pod has to carry to get the resource. Raises ValueError, with field and value."""
        return asks.resource_request(namespace or self.namespace, name, units, shared=shared)

    def policy(self, *names: str, namespace: str | None = None) -> Ask:
        """What a pod has to carry so that all these EscherPolicies match it; `|`: one of two asks.

        The first that can be satisfied counts. Raises ValueError, with field and value."""
        return asks.policy(namespace or self.namespace, *names)
