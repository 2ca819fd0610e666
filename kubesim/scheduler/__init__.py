"""kube-scheduler 1.36, as its extender and the API server's clients see it.

Queue, back-off, wakes, sampling, filter messages, extender calls, assumed pods and preemption follow
k8s.io/kubernetes/pkg/scheduler 1.36. It reads the real scheduler's configuration files, follows objects a little late,
and writes through the API. The docs list intended differences.
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
