"""Vocabulary: the names of approaches and workloads in raw files and reports, and their bases.

A name that is not here is shown as it is, after those that are.
"""

from __future__ import annotations

BASE, BASE_AGAIN, THROUGH = "ungrouped", "ungrouped-again", "through"
JOB, JOB_GANG = "job", "job-gang"
APPSPACE, LIBSPACE, EXTENDER, NATIVE, COSCHEDULING = "appspace", "libspace", "extender", "native", "coscheduling"
LEDGER, OPTIMISTIC, OPTIMISTIC_LEDGER, UNSAFE = "ledger", "optimistic", "optimistic-ledger", "unsafe"
CO_LOCATION, BALANCING, FAIR_SHARE = "co-location", "balancing", "fair-share"

APPROACHES = {
    BASE: "pods without a gang and without the extender: the base of all ratios",
    BASE_AGAIN: "the base once more: its ratio tells what the measuring makes of no difference",
    THROUGH: "pods without a gang, through the extender",
    APPSPACE: "gangs in AppSpace: ghost pods, time-outs and back-off in each application",
    LIBSPACE: "gangs in LibSpace: ghost pods, in turns of one shared service",
    EXTENDER: "gangs by the extender: planned in the ledger, bound behind a barrier",
    "gated": "the same, behind Escher's scheduling gate",
    LEDGER: "the same, where ephemeral resources are in the ledger alone",
    NATIVE: "Kubernetes' own pod group",
    COSCHEDULING: "the coscheduling plugin of scheduler-plugins",
    JOB: "the pods of a Job, without a gang: the base of job-gang",
    JOB_GANG: "the pods of a Job as a gang by the extender",
    OPTIMISTIC: "the extender, where nothing is reserved at filter: room is checked at bind",
    OPTIMISTIC_LEDGER: "the same, where ephemeral resources are in the ledger alone",
    UNSAFE: "a warning: gangs planned in extended resources, with nothing that holds the room",
}
SINGLE, CONTENTION, MIXED, ARRIVALS, CHURN, TRACE = "single", "contention", "mixed", "arrivals", "churn", "trace"
CLAIMS, BURST = "claims", "burst"
BY_POLICY = {
    BASE: "the pods without the policy, which need not keep it: the base of all ratios",
    APPSPACE: "an ESL in each application, by extended resources",
    LIBSPACE: "an ESL in one service that all applications share, by extended resources",
    EXTENDER: "an EscherPolicy, by the extender",
    NATIVE: "what Kubernetes itself has for the policy, in the pods",
}
"""What the same names mean for a policy other than gangs, which has no other approaches."""
WORKLOADS = {
    SINGLE: "One gang on an idle cluster",
    BURST: "Many gangs as fast as they can be asked for, with room for all",
    ARRIVALS: "Gangs that arrive at random times",
    CONTENTION: "Gangs that cannot all be there at once",
    MIXED: "The same among ordinary pods",
    CHURN: "A member and a node are lost meanwhile",
    CLAIMS: "Pods that each ask for one of few ephemeral resources",
    TRACE: "Gangs among the pods of a real trace",
    CO_LOCATION: "Groups that are each to be on one node",
    BALANCING: "A group that is to be spread evenly",
    FAIR_SHARE: "Pods of two users who are to share what is short as 2 : 3",
}
POLICIES = frozenset({CO_LOCATION, BALANCING, FAIR_SHARE})
"""Workloads of policies other than gangs."""
OURS = (EXTENDER, "gated", LEDGER)
"""The approaches that this project recommends."""
BY_LEDGER = frozenset({THROUGH, *OURS, JOB_GANG, OPTIMISTIC, OPTIMISTIC_LEDGER})
"""Approaches that reserve room in the service's ledger, which a watcher of pods cannot see."""
OTHERS = (NATIVE, COSCHEDULING, APPSPACE, LIBSPACE)
"""The other approaches that place a gang as a whole."""
SPACES = {
    "AppSpace": (78, 937.0, APPSPACE),
    "LibSpace": (261, 892.0, LIBSPACE),
    "FrameSpace": (1624, 381.0, EXTENDER),
}
"""The paper's spaces: its lines of code, its milliseconds for a gang, and our approach."""


PESSIMISTIC = {OPTIMISTIC: EXTENDER, OPTIMISTIC_LEDGER: LEDGER}
"""The approach that reserves at filter, and does all else alike."""


def base_of(approach: str, workload: str = SINGLE) -> str:
    """The base of its ratios. If gangs contend, pods without gangs block each other for ever."""
    if workload == CLAIMS:
        return PESSIMISTIC.get(approach, approach)
    if workload not in POLICIES | {SINGLE, BURST, CHURN, TRACE}:
        return LIBSPACE
    return JOB if approach == JOB_GANG else BASE


def in_order(names: set[str], known: dict[str, str]) -> list[str]:
    """Known names in the order of their table, then all others by name."""
    return [*(name for name in known if name in names), *sorted(names - known.keys())]
