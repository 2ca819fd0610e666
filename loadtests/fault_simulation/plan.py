"""Plan: what people ask for and what goes wrong, as plain values for JSON; the faults' meanings.

A fault selects what it meets by counting, not by chance: a plan without some of its parts is otherwise the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

FaultKind = Literal[
    "lose-request",
    "lose-answer",
    "delay-request",
    "delay-answer",
    "late-request",
    "repeat-request",
    "conflict",
    "throttle",
    "fail",
    "refuse",
    "outage",
    "forbid",
    "hold-watches",
    "repeat-events",
    "break-watches",
    "forget-changes",
    "silence-watches",
    "expire-watches",
    "restore",
    "lose-call",
    "lose-verdict",
    "time-out-call",
    "delay-call",
    "repeat-call",
    "kill-service",
    "end-service",
    "cut-off-service",
    "cut-off-lease",
    "kill-scheduler",
    "delete-pods",
    "lose-node",
    "reset-node",
    "meddle",
    "noisy-tenant",
    "set-clock",
]

MEANING: Mapping[FaultKind, str] = {
    "lose-request": "a request of the service does not arrive, and it is told, so many seconds later, that nobody "
    "answered",
    "lose-answer": "a request is carried out, and the service is told, so many seconds later, that nobody answered",
    "delay-request": "a request arrives so many seconds later",
    "delay-answer": "an answer comes so many seconds later",
    "late-request": "the service is told that nobody answered, and the request arrives so many seconds after that",
    "repeat-request": "a request arrives a second time, so many seconds after the first",
    "conflict": "a write is refused with 409, so many seconds later: somebody has changed the object",
    "throttle": "a request is refused with 429, and is to come again after so many seconds",
    "fail": "a request is refused with 500, so many seconds later",
    "refuse": "a Binding is refused for good, with 422, so many seconds later: an admission webhook may take its time",
    "outage": "all requests of this kind are refused with 503, for so many seconds",
    "forbid": "requests of this kind are refused with 403, for so many seconds: rights were withdrawn, or are not read "
    "yet",
    "hold-watches": "these watches tell nothing for so many seconds, and then all of it: facts of other kinds overtake",
    "repeat-events": "whatever a watch tells is told twice, for so many seconds",
    "break-watches": "all watches of the service fail, and what they had to tell is lost",
    "forget-changes": "etcd is compacted, and the service's watches end: it has to list",
    "silence-watches": "the watches of this kind that are open now stay open, and tell nothing any more",
    "expire-watches": "as many watches as are met are answered 410, one after the other: each is listed anew",
    "restore": "etcd is restored to what it held when this began, so many seconds later; versions go on, go back or "
    "stay the same; `losing`: the API server is away just before and after. kube-scheduler is started anew, and people "
    "ask for their resources again",
    "lose-call": "a call of kube-scheduler does not arrive",
    "lose-verdict": "a call is answered, and kube-scheduler does not hear it",
    "time-out-call": "kube-scheduler waits for so many seconds, and gives a call up; the service goes on with it",
    "delay-call": "a call arrives so many seconds later",
    "repeat-call": "a call arrives twice, the second time so many seconds later",
    "kill-service": "the service (of several the one that leads) is killed, and started again after so many seconds; "
    "what it has just sent arrives, or (`losing`) does not",
    "end-service": "the service (of several the one that leads) is asked to end, as SIGTERM does it, and started again "
    "so many seconds after it has",
    "cut-off-service": "the service (of several the one that leads) reaches no API server for so many seconds",
    "cut-off-lease": "of several services the one that leads reaches all but its lease, for so many seconds",
    "kill-scheduler": "kube-scheduler is killed, and started again after so many seconds",
    "delete-pods": "somebody deletes some of the pods of one who asked for several",
    "lose-node": "a node is gone, its pods lost, and back after so many seconds or (`losing`) never",
    "reset-node": "a kubelet registers its node anew: what ephemeral resources stood in its status is gone",
    "meddle": "somebody changes all nodes and all objects of ours again and again, for so many seconds",
    "noisy-tenant": "a tenant makes so many objects of these kinds, edits them so often a second, for so many seconds, "
    "and removes them",
    "set-clock": "the time of day is set by so many seconds on the service's machine",
}
assert set(MEANING) == set(get_args(FaultKind))

TARGETS: Mapping[str, tuple[str, str]] = {
    "all": ("", ""),
    "bindings": ("POST", r"/binding(\?|$)"),
    "evictions": ("POST", r"/eviction(\?|$)"),
    "pod patches": ("PATCH", r"/pods/[^/]+(/status)?(\?|$)"),
    "node status": ("PATCH", r"/nodes/[^/]+/status(\?|$)"),
    "resource creations": ("POST", r"/ephemeralresources(\?|$)"),
    "resource patches": ("PATCH", r"/ephemeralresources/[^/?]+(\?|$)"),
    "resource deletions": ("DELETE", r"/ephemeralresources/"),
    "resource status": ("PATCH", r"/ephemeralresources/[^/?]+/status(\?|$)"),
    "lists": ("GET", r"\?limit="),
    "watches": ("GET", r"watch=1"),
    "watch of pods": ("GET", r"/pods\?.*watch=1"),
    "watch of nodes": ("GET", r"/nodes\?.*watch=1"),
    "watch of resources": ("GET", r"/ephemeralresources\?.*watch=1"),
    "intent creations": ("POST", r"/transactionintents(\?|$)"),
    "intent deletions": ("DELETE", r"/transactionintents/"),
    "leases": ("", r"/leases"),
    "reads": ("GET", ""),
    "reads of pods": ("GET", r"/pods(\?|$)"),
    "reads of nodes": ("GET", r"/nodes(\?|$)"),
    "reads of resources": ("GET", r"/ephemeralresources(\?|$)"),
    "reads of policies": ("GET", r"/escherpolicies(\?|$)"),
    "reads of namespaces": ("GET", r"/namespaces(\?|$)"),
    "reads of jobs": ("GET", r"/jobs(\?|$)"),
    "reads of daemon sets": ("GET", r"/daemonsets(\?|$)"),
    "reads of budgets": ("GET", r"/poddisruptionbudgets(\?|$)"),
    "reads of intents": ("GET", r"/transactionintents(\?|$)"),
}
"""The requests that a fault meets: a method (empty: any) and a pattern found in the path."""

VERSIONS = ("on", "back", "same")
"""Where resource versions go in a restore.

On, as by `etcdutl snapshot restore --bump-revision ... --mark-compacted`; back, as by a copied folder; or nowhere, if
others write as many versions meanwhile."""

MENDED_WITHIN = 140.0
"""Seconds from a restore until the service must know of it.

It notices a silent watch after 90. A list made for a doubt waits until a minute after the list before it."""

NOISES = (
    "pods", "gated", "gangs", "policies", "resources", "podgroups", "jobs", "daemonsets", "budgets", "nodes"
)  # fmt: skip

QUIET_WITHIN = 20.0
"""Seconds for which a noisy tenant creates and removes its objects, in addition to the edits."""

CALLS = ("filter-only", "prioritize", "bind")
"""The verbs that kube-scheduler calls for the pods of a plan, as they stand in addresses."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fault, `at` seconds from the start: `skip` matches pass, and it meets (or makes) `times`.

    `of`: one of `TARGETS`, `CALLS` or `VERSIONS`, a node, a work, or `NOISES` joined by "+". `rate`: edits a second."""

    kind: FaultKind
    at: float
    seconds: float = 0.0
    of: str = "all"
    skip: int = 0
    times: int = 1
    losing: bool = False
    rate: int = 0


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request, `at` seconds from the start, taken back `lasts` seconds later (None: at the end).

    A `gang` has `size` pods as its quorum, and `surplus` more. `pods` are single. `foreign` pods are bound by another
    scheduler at once, each where most CPU is free; without room they do not come. A `resource` has `capacity` on
    `nodes` nodes (0: all) and ends after `seconds`. A `transaction` sets all resources in `over` to that as one. Its
    caller asks once and waits for `patience` seconds (0: for an answer). A `policy` keeps pods of a `group` off each
    other. Pods ask for `cpu`, for one unit of `asks`, and for the host port `port` (0: none). They run for `seconds`
    (0: until deleted), in the class `priority` (empty: none). With `ledger` their profile calls the service's ledger
    alone."""

    kind: Literal["gang", "pods", "foreign", "resource", "transaction", "policy"]
    name: str
    at: float
    lasts: float | None = None
    size: int = 1
    surplus: int = 0
    cpu: int = 1
    asks: str = ""
    gated: bool = False
    group: str = ""
    port: int = 0
    seconds: float = 0.0
    capacity: int = 0
    nodes: int = 0
    over: tuple[str, ...] = ()
    patience: float = 0.0
    priority: str = ""
    ledger: bool = False


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """`replicas`: the number of replicas of the service; a single one runs without an election."""

    seed: int
    works: tuple[Work, ...]
    faults: tuple[Fault, ...]
    nodes: int = 3
    replicas: int = 1

    @property
    def ends(self) -> float:
        """Seconds within which all works have begun, and all faults have ended."""
        works = (each.at + (each.lasts or 0.0) for each in self.works)
        return max([*works, *map(_end_of, self.faults)], default=0.0)


def _end_of(fault: Fault) -> float:
    match fault.kind:
        case "set-clock":
            return fault.at
        case "restore":
            return fault.at + fault.seconds + MENDED_WITHIN
        case "silence-watches":
            return fault.at + MENDED_WITHIN
        case "noisy-tenant":
            return fault.at + fault.seconds + QUIET_WITHIN
    return fault.at + max(0.0, fault.seconds)


class BadPlan(ValueError):
    """A file that holds no plan; `str()` says why."""


def written(plan: Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def read(content: bytes) -> Plan:
    """The plan in a file's content. Raises BadPlan."""
    try:
        return msgspec.json.decode(content, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPlan(f"{error}; a plan is what --replay is given, as this command writes it") from error


def in_words(fault: Fault) -> str:
    told = [f"{fault.at:.2f} s {fault.kind}"]
    told += [fault.of] if fault.of != "all" else []
    told += [f"{fault.seconds:.2f} s"] if fault.seconds else []
    told += [f"after {fault.skip} others"] if fault.skip else []
    told += [f"{fault.times} times"] if fault.times > 1 else []
    told += [f"{fault.rate} a second"] if fault.rate else []
    return ", ".join([*told, "losing"] if fault.losing else told)


def work_in_words(work: Work) -> str:
    said = ((each, getattr(work, each.name)) for each in msgspec.structs.fields(work) if not each.required)
    named = ", ".join(f"{each.name} {value}" for each, value in said if value != each.default)
    return f"{work.at:.2f} s {work.kind} {work.name}{f' ({named})' if named else ''}"
