"""Options: what kind of embedded cluster is wanted, for those who make one in a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.kinds import Json

DEFAULT_SCHEDULER: Json = {"kind": "KubeSchedulerConfiguration"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What kind of cluster is wanted."""

    scheduler_configs: Sequence[Json] = (DEFAULT_SCHEDULER,)
    """A KubeSchedulerConfiguration for each scheduler."""
    pod_annotations: str = "kubesim"
    """Domain of the annotations run-seconds, stop-seconds and stop-exit-code, by which pods say how they are played."""
    seed: int = 1
    """Draws names, UIDs and ties."""

    def cluster(self, clock: Clock, *, token: str | None = None) -> Cluster:
        """Make it inside the running event loop."""
        return Cluster(
            clock,
            seed=self.seed,
            scheduler_configs=self.scheduler_configs,
            token=token,
            pod_annotations=self.pod_annotations,
        )
