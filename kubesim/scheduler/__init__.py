"""kube-scheduler 1.36, played: what its extender and those who watch the API server see of it.

Queue, back-off, wakes, sampling, filter messages, extender calls, assumed pods and preemption are those of the real one
(k8s.io/kubernetes/pkg/scheduler 1.36). It reads the configuration files that the real one gets, follows the objects a
little late, and writes through the API. Where it differs on purpose: see docs.
"""

from kubesim.scheduler.config import BadConfig, ExtenderConfig, Profile, SchedulerConfig
from kubesim.scheduler.extender_client import CallableExtender, ExtenderClient, ExtenderFailed, HttpExtender
from kubesim.scheduler.scheduler import Scheduler

__all__ = [
    "BadConfig",
    "CallableExtender",
    "ExtenderClient",
    "ExtenderConfig",
    "ExtenderFailed",
    "HttpExtender",
    "Profile",
    "Scheduler",
    "SchedulerConfig",
]
