"""Tracing: wraps the parts of the service, with one tracer for all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from opentelemetry.trace import TracerProvider

from extender import __version__
from extender.adapters.http.server.asgi import Service
from extender.adapters.tracing.calls import TracedService
from extender.adapters.tracing.gangs import GangSpans, GivenUp
from extender.adapters.tracing.verbs import TracedVerbs
from extender.adapters.tracing.writes import TracedCluster, TracedRequests, Warm
from extender.app.contracts.effects import Effect
from extender.app.contracts.extender_api import Verbs
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey
from extender.kube.client.requests import Requests
from extender.kube.names import PodUid


class Tracing:
    """Each method returns the same part, traced."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("escher", __version__)
        self._gangs = GangSpans(self._tracer)

    def served(self, service: Service) -> TracedService:
        return TracedService(service, self._tracer, service.calls.by_name)

    def verbs(self, verbs: Verbs, pods: Mapping[PodUid, Pod]) -> Verbs:
        """`pods`: the known pods."""

        def gang_of(uid: PodUid) -> GangKey | None:
            pod = pods.get(uid)
            return pod.gang.key if pod is not None and isinstance(pod.gang, GangAsk) else None

        return TracedVerbs(verbs, self._gangs, gang_of)

    def cluster(self, connection: Warm) -> TracedCluster:
        return TracedCluster(connection, self._tracer)

    def requests(self, connection: Requests) -> Requests:
        return TracedRequests(connection, self._tracer)

    def told(self, others: Callable[[Effect], None]) -> Callable[[Effect], None]:
        return self._gangs.told_too(others)

    def given_up(self, other: GivenUp | None) -> GivenUp:
        return self._gangs.given_up_too(other)
