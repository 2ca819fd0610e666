"""Policy types: what an EscherPolicy may be, and the parameters of each. Values only.

A type is a frozen dataclass. What a field may be stands in its metadata: `description` for people, `ge` and `le` for
numbers, `max_length` and `pattern` for texts (those of a list too), `min_items` and `max_items` for lists. A list may
be of values that have fields themselves, of one word each. From this come the JSON schemas of the API, the definition
of the custom resource, and the checks of both.

Most types are heeded: pods of our schedulers name a policy, or are selected. Those of `Hosted` are asked: the policy
answers what a pod has to say. Must not know how a type is carried out: that is `filters`, and `esl` for what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extender.kube.label_match import LabelRequirement, Selector
from extender.kube.names import LABEL_LIMIT

HOSTNAME = "kubernetes.io/hostname"
MOST_TASKS = 1_000_000
MOST_NAMES = 32
MOST_ITEMS = 64
LARGEST_WEIGHT = 1000

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LABEL_KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


def _whole(default: int, description: str, ge: int, le: int) -> Any:
    return field(default=default, metadata={"description": description, "ge": ge, "le": le})


def _names(description: str, min_items: int = 0) -> Any:
    said = {"description": description, "pattern": _LABEL, "max_length": LABEL_LIMIT, "max_items": MOST_NAMES}
    if min_items:
        return field(metadata={**said, "min_items": min_items})
    return field(default=(), metadata=said)


def _topology() -> Any:
    said = "The node label whose value is the topology domain; by default, each node is a domain"
    return field(default=HOSTNAME, metadata={"description": said, "pattern": _LABEL_KEY, "max_length": 317})


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """No two of the policy's pods share a topology domain. With `away_from`, none shares one with a pod of those
    policies instead, nor the reverse."""

    away_from: tuple[str, ...] = _names(
        "Names of policies of this namespace from whose pods this policy's pods stay apart. Empty: from each other"
    )
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class CoLocation:
    """All of the policy's pods share a topology domain: that of the first pod; with `size`, one that has room for
    that many pods like it."""

    size: int = _whole(0, "Expected number of pods, all alike; 0: unknown", 0, MOST_TASKS)
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class Balance:
    """The policy's pods are spread evenly: at most ceil(tasks / domains) in a topology domain. If `tasks` is 0, at most
    `max_skew` more than in the domain with the fewest."""

    tasks: int = _whole(0, "Expected number of pods; 0: unknown", 0, MOST_TASKS)
    max_skew: int = _whole(1, "By how many pods domains may differ if tasks is 0", 1, MOST_TASKS)
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class BinPacking:
    """The policy's pods use as few nodes as possible: first nodes that have some of them, the fullest first; another
    node only if none of these has room."""


@dataclass(frozen=True, slots=True)
class DataLocality:
    """The policy's pods are on nodes that have the data: the ephemeral resource of that name is above 0."""

    data: tuple[str, ...] = _names("Names of ephemeral resources of this namespace; a node must have all of them", 1)
    required: bool = field(
        default=True, metadata={"description": "Whether pods wait for such a node, or only prefer it"}
    )


@dataclass(frozen=True, slots=True)
class Objective:
    """Of the suitable nodes, the one with the best value of a numeric node label is chosen."""

    label: str = field(
        metadata={
            "description": "The node label whose value is the score; nodes without a numeric value come last",
            "pattern": _LABEL_KEY,
            "max_length": 317,
        }
    )
    prefer: str = field(
        default="highest",
        metadata={"description": "Whether the highest or the lowest value is best", "pattern": "^(highest|lowest)$"},
    )


@dataclass(frozen=True, slots=True)
class Soft:
    """An ordered list of policies: pods follow the first; after `wait_seconds` without a place the second, and so on.
    After the last they follow none, unless `required`."""

    preferences: tuple[str, ...] = _names("Names of policies of this namespace, in order of preference", 1)
    wait_seconds: int = _whole(5, "How many seconds each policy is tried", 1, 3600)
    required: bool = field(default=True, metadata={"description": "Whether pods must meet one of these in the end"})


@dataclass(frozen=True, slots=True)
class FairShare:
    """Waiting gangs and pods go in the order of what their queue uses relative to its weight; with `parent`, first in
    the order of what the parent uses relative to its own."""

    weight: int = _whole(1, "The weight of the share relative to its siblings", 1, LARGEST_WEIGHT)
    parent: str = field(
        default="",
        metadata={
            "description": "The policy of this namespace and type whose share contains this one. Empty: top level",
            "pattern": rf"^$|{_LABEL}",
            "max_length": LABEL_LIMIT,
        },
    )


@dataclass(frozen=True, slots=True)
class Priority:
    """Waiting gangs and pods of higher priority go first. Each `ageing_seconds` of waiting count as one priority more,
    so that none waits forever."""

    priority: int = _whole(0, "Pods with a higher value go first", -1000, 1000)
    ageing_seconds: int = _whole(600, "Seconds of waiting that raise a pod's priority by 1", 1, 86400)


def _name(description: str) -> Any:
    return field(metadata={"description": description, "pattern": _LABEL, "max_length": LABEL_LIMIT})


def _items(description: str) -> Any:
    return field(metadata={"description": description, "min_items": 1, "max_items": MOST_ITEMS})


@dataclass(frozen=True, slots=True)
class Queue:
    """At most `capacity` of the tasks that asked run at once, on any nodes; with 1, it is a mutex. Tasks ask the
    policy, which answers what their pods must carry."""

    capacity: int = _whole(1, "How many tasks may run at once", 0, MOST_TASKS)


@dataclass(frozen=True, slots=True)
class Successor:
    """A task that comes after others."""

    name: str = _name("The task that waits")
    after: tuple[str, ...] = _names("The tasks that it waits for; all must succeed", 1)


@dataclass(frozen=True, slots=True)
class Signal:
    """A task runs when the tasks before it have succeeded: barriers, chains and graphs. Tasks ask the policy, which
    answers what their pods must carry."""

    successors: tuple[Successor, ...] = _items("Tasks that wait for others; other tasks wait for none")
    succeeded: tuple[str, ...] = _names("Tasks that succeeded, besides those whose pods did")


@dataclass(frozen=True, slots=True)
class User:
    """A user that has a share."""

    name: str = _name("The group that this user's tasks name")
    weight: int = _whole(1, "The weight of the share relative to its siblings", 1, LARGEST_WEIGHT)
    parent: str = field(
        default="",
        metadata={
            "description": "The user whose share contains this one. Empty: top level",
            "pattern": rf"^$|{_LABEL}",
            "max_length": LABEL_LIMIT,
        },
    )
    idle: bool = field(
        default=False, metadata={"description": "Whether the user wants nothing now; its siblings get its share"}
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Users have whole nodes, in proportion to their weights, inside their parents' share. Tasks ask the policy with
    their user as group, and it answers what their pods must carry."""

    users: tuple[User, ...] = _items("All users that have a share")


Hosted = Queue | Signal | Shares
"""Those that applications ask, and that the service carries out by an ESL."""

Parameters = (
    AntiAffinity
    | CoLocation
    | Balance
    | BinPacking
    | DataLocality
    | Objective
    | Soft
    | FairShare
    | Priority
    | Queue
    | Signal
    | Shares
)

TYPES: Mapping[str, type[Parameters]] = {
    "anti-affinity": AntiAffinity,
    "balance": Balance,
    "bin-packing": BinPacking,
    "co-location": CoLocation,
    "data-locality": DataLocality,
    "fair-share": FairShare,
    "objective": Objective,
    "priority": Priority,
    "queue": Queue,
    "shares": Shares,
    "signal": Signal,
    "soft": Soft,
}
"""By the name that people write."""

EXAMPLES: Mapping[str, Parameters] = {
    "anti-affinity": AntiAffinity(),
    "balance": Balance(tasks=4),
    "bin-packing": BinPacking(),
    "co-location": CoLocation(size=2),
    "data-locality": DataLocality(("data1",)),
    "fair-share": FairShare(weight=2),
    "objective": Objective("example.com/gpu-generation"),
    "priority": Priority(10),
    "queue": Queue(4),
    "shares": Shares((User("research", 2), User("web"))),
    "signal": Signal((Successor("train", ("load", "clean")),)),
    "soft": Soft(("near-data", "anywhere-in-zone"), 5),
}


@dataclass(frozen=True, slots=True)
class PodSelector:
    """A label selector as its author says it: `match_expressions` beside `match_labels`, all of which must hold. One
    without any requirement selects every pod of the namespace."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """An EscherPolicy as its author says it: nothing of it is checked. `parameters` are of the type. The pods that it
    governs are those of its namespace that name it by annotation, and those that it selects; without `selector` those
    that name it alone."""

    type: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    selector: PodSelector | None = None


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What is in force of an EscherPolicy. `selector`: None selects nothing."""

    parameters: Parameters
    selector: Selector = None


def type_of(parameters: Parameters) -> str:
    """The name of their type, as people write it."""
    return next(name for name, each in TYPES.items() if each is type(parameters))


def names_of(parameters: Parameters) -> Mapping[str, tuple[str, ...]]:
    """The policies of its namespace that one with these parameters names, by the parameter that does."""
    match parameters:
        case AntiAffinity(away_from=names):
            return {"away_from": names}
        case Soft(preferences=names):
            return {"preferences": names}
        case FairShare(parent=name) if name:
            return {"parent": (name,)}
    return {}
