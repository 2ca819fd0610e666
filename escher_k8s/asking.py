"""Asking: the asks that a client makes, in its own namespace. Nothing is sent."""

from __future__ import annotations

from collections.abc import Mapping

from escher_k8s import asks
from escher_k8s.asks import Ask, SchedulerName


class Asking:
    """`namespace` is that of every ask which is not given another."""

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
        """What each pod of a gang has to say, so that `size` of them are placed together or none.

        `each`: what one member needs, as Kubernetes' quantities; None: what its manifest asks for already. Members that
        differ get an ask each, of the same name and size. `timeout_seconds`: how long members wait for the others.
        `gated`: kube-scheduler is not to look at them before there is room. Raises ValueError, with field and value.
        """
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
        """What a pod has to say to get `units` of the ephemeral resource. Raises ValueError, with field and value."""
        return asks.resource_request(namespace or self.namespace, name, units, shared=shared)

    def policy(self, *names: str, namespace: str | None = None) -> Ask:
        """What a pod has to say to be governed by these EscherPolicies, all of them. `|` between two such asks: by the
        first that can be had. Raises ValueError, with field and value."""
        return asks.policy(namespace or self.namespace, *names)
