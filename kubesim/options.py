"""Options: the properties of an embedded cluster that a test creates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.kinds import Json

DEFAULT_SCHEDULER: Json = {"kind": "KubeSchedulerConfiguration"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The properties of an embedded cluster."""

    scheduler_configs: Sequence[Json] = (DEFAULT_SCHEDULER,)
    """A KubeSchedulerConfiguration for each scheduler."""
    pod_annotations: str = "kubesim"
    """Domain of the annotations run-seconds, stop-seconds and stop-exit-code, which pods carry."""
    seed: int = 1
    """The seed from which names, UIDs and ties are drawn."""

    def cluster(self, clock: Clock, *, token: str | None = None) -> Cluster:
        """Creates the cluster. It must be called inside the running event loop."""
        return Cluster(
            clock,
            seed=self.seed,
            scheduler_configs=self.scheduler_configs,
            token=token,
            pod_annotations=self.pod_annotations,
        )
