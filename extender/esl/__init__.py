"""ESLs: policies for applications, which turn what is asked into ephemeral resources.

Each also returns a requirement for the application's pods. An ESL is sans-I/O, in the shape of `base.Esl`: events and
time in, effects out. So it runs unchanged in an application (AppSpace), in a service that several share (LibSpace) and
in simulation. `extender.adapters.kubernetes.appspace.cluster_port` runs one against an API server, `escher_k8s` on an
application's own port, and `extender.app.escher_policies.esl_host` in the extender. A random seed is an argument. Only
`ghost_manifest` and `task_manifest` write Kubernetes' JSON.
"""

from __future__ import annotations

from extender.esl.base import Esl, PodRequirement
from extender.esl.gangs.gang_life import GhostPhase, Times
from extender.esl.gangs.gang_spec import Approach, GangSpec, gang
from extender.esl.gangs.gang_turns import GangEsl, Space

__all__ = ["Approach", "Esl", "GangEsl", "GangSpec", "GhostPhase", "PodRequirement", "Space", "Times", "gang"]
