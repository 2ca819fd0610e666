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
    said = "The node label by whose value nodes are one place; without it, each node is a place of its own"
    return field(default=HOSTNAME, metadata={"description": said, "pattern": _LABEL_KEY, "max_length": 317})


@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """No two of the policy's pods are in one place; or, with `away_from`, none is where a pod of those policies is,
    which keep away in turn."""

    away_from: tuple[str, ...] = _names(
        "Names of policies of this namespace whose pods these keep away from. Empty: these keep away from each other"
    )
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class CoLocation:
    """All of the policy's pods are in one place: where the first of them is; with `size`, one that has room for so
    many of its like."""

    size: int = _whole(0, "How many pods there will be, alike; 0: not known", 0, MOST_TASKS)
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class Balance:
    """The policy's pods are spread evenly: no place has over ceil(tasks / places) of them; or, where `tasks` is 0, over
    `max_skew` more than the place with fewest."""

    tasks: int = _whole(0, "How many pods there will be; 0: not known", 0, MOST_TASKS)
    max_skew: int = _whole(1, "By how much places may differ where the number of pods is not known", 1, MOST_TASKS)
    topology_key: str = _topology()


@dataclass(frozen=True, slots=True)
class BinPacking:
    """The policy's pods go to as few nodes as will do: to nodes that have some of them already, and of those to the
    fullest; to another where none of these has room."""


@dataclass(frozen=True, slots=True)
class DataLocality:
    """The policy's pods are on nodes that have the data: where the ephemeral resource of that name is above 0."""

    data: tuple[str, ...] = _names("Names of ephemeral resources of this namespace, of which a node has all", 1)
    required: bool = field(
        default=True, metadata={"description": "Whether pods wait for such a node, or only prefer it"}
    )


@dataclass(frozen=True, slots=True)
class Objective:
    """Of the nodes that will do, the one with the best value is chosen: a node label that is a number."""

    label: str = field(
        metadata={
            "description": "The node label whose value is the score; nodes without a number there come last",
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
    """An ordered list of policies: pods keep to the first; after `wait_seconds` without a place to the second, and so
    on. After the last they keep to none, unless `required`."""

    preferences: tuple[str, ...] = _names("Names of policies of this namespace, the best first", 1)
    wait_seconds: int = _whole(5, "How long each of them is tried for", 1, 3600)
    required: bool = field(default=True, metadata={"description": "Whether one of them must hold in the end"})


@dataclass(frozen=True, slots=True)
class FairShare:
    """Gangs and pods that wait go in the order of what their queue uses for its weight; with `parent`, first in the
    order of what that uses for its own."""

    weight: int = _whole(1, "How much of what there is is theirs, against their siblings", 1, LARGEST_WEIGHT)
    parent: str = field(
        default="",
        metadata={
            "description": "A policy of this namespace and type, in whose share this is. Empty: it is one of the first",
            "pattern": rf"^$|{_LABEL}",
            "max_length": LABEL_LIMIT,
        },
    )


@dataclass(frozen=True, slots=True)
class Priority:
    """Who waits and has a higher priority goes first; who has waited for `ageing_seconds` counts as one higher, so that
    nobody waits for ever."""

    priority: int = _whole(0, "The higher, the sooner", -1000, 1000)
    ageing_seconds: int = _whole(600, "After how long of waiting a pod counts as one higher", 1, 86400)


def _name(description: str) -> Any:
    return field(metadata={"description": description, "pattern": _LABEL, "max_length": LABEL_LIMIT})


def _items(description: str) -> Any:
    return field(metadata={"description": description, "min_items": 1, "max_items": MOST_ITEMS})


@dataclass(frozen=True, slots=True)
class Queue:
    """At most so many of the tasks that asked run at once, wherever they run; with 1, it is a mutex. Tasks ask the
    policy, which answers what their pods have to say."""

    capacity: int = _whole(1, "How many may run at once", 0, MOST_TASKS)


@dataclass(frozen=True, slots=True)
class Successor:
    """A task that comes after others."""

    name: str = _name("The task that waits")
    after: tuple[str, ...] = _names("The tasks that it waits for, all of them", 1)


@dataclass(frozen=True, slots=True)
class Signal:
    """A task runs when those that it comes after have succeeded: barriers, chains and graphs. Tasks ask the policy,
    which answers what their pods have to say."""

    successors: tuple[Successor, ...] = _items("The tasks that come after others; who is not listed waits for nobody")
    succeeded: tuple[str, ...] = _names("Tasks that have succeeded, beside those whose pods are seen to")


@dataclass(frozen=True, slots=True)
class User:
    """Who has a share."""

    name: str = _name("The group that tasks of this user ask with")
    weight: int = _whole(1, "How much of what there is is theirs, against their siblings", 1, LARGEST_WEIGHT)
    parent: str = field(
        default="",
        metadata={
            "description": "The user in whose share this one's is. Empty: it is one of the first",
            "pattern": rf"^$|{_LABEL}",
            "max_length": LABEL_LIMIT,
        },
    )
    idle: bool = field(
        default=False, metadata={"description": "Whether it wants nothing for now: its siblings have what is its"}
    )


@dataclass(frozen=True, slots=True)
class Shares:
    """Users have whole nodes, in proportion to their weights, inside what their parents have. Tasks ask the policy with
    their user as group, and it answers what their pods have to say."""

    users: tuple[User, ...] = _items("All who have a share")


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
