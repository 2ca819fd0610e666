"""ESLs: policies for applications. An ask goes in; ephemeral resources, and a requirement for the application's pods,
come out.

Each is sans-I/O, in the shape of `base.Esl`: events and time in, effects out. So it runs unchanged in an application
(AppSpace), in a service shared by several (LibSpace) and in simulation; `extender.adapters.kubernetes.cluster_port`
runs one against an API server, `escher_k8s` on an application's own port, `extender.app.escher_policies.esl_host` in
the extender. An ESL must not know clocks, networks, logs, chance (a seed is an argument) or Kubernetes' JSON, which
`ghost_manifest` and `task_manifest` alone spell.
"""

from __future__ import annotations

from extender.esl.base import Esl, PodRequirement
from extender.esl.gang_life import GhostPhase, Times
from extender.esl.gang_spec import Approach, GangSpec, gang
from extender.esl.gang_turns import GangEsl, Space

__all__ = ["Approach", "Esl", "GangEsl", "GangSpec", "GhostPhase", "PodRequirement", "Space", "Times", "gang"]
