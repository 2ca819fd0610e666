"""Gang ask: what a pod states about its gang, in its label, annotations and controller.

A gang without a label is identified by its controller's UID, not by the controller's name. So two controllers of one
kind and name are two gangs, if they are of two API groups or one was created after the other. An ownerReference is any
text that its author chooses: it only groups pods of their own namespace.

The keys are those of docs/gangs.md, and the label of a PodGroup of scheduler-plugins. A malformed value never
raises: it becomes a MalformedAsk, which names the key and a correction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from extender.core.names import CORE_GROUP, DOMAIN, GangKey
from extender.kube.names import InvalidName, require_label

GANG_LABEL = f"{DOMAIN}/gang"
MIN_MEMBER = f"{DOMAIN}/gang-min-member"
TIMEOUT = f"{DOMAIN}/gang-timeout-seconds"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
DEFAULT_TIMEOUT = 30.0
GANG_GATE = GANG_LABEL
"""Scheduling gate: the pod waits for its gang's turn, and kube-scheduler ignores it until then."""
LARGEST_GANG = 10_000
_LONGEST_VALUE = 253
"""Characters of a value that are kept for messages; no name is longer."""
LONGEST_KIND, LONGEST_NAME, LONGEST_UID = 63, 253, 128
"""Limits of a controller's names in characters; no object has a longer kind, name or API group."""


class Controller(Protocol):
    """A pod's controller from its ownerReference; too long a text is cut after the limit."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def group(self) -> str: ...


@dataclass(frozen=True, slots=True)
class GangAsk:
    """A pod's gang, its quorum, and how many seconds its members wait."""

    key: GangKey
    quorum: int
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True)
class GroupAsk:
    """A pod's membership in a PodGroup of scheduler-plugins, which may state the quorum."""

    namespace: str
    name: str
    longest_wait: float
    """kube-scheduler's httpTimeout, in seconds."""


@dataclass(frozen=True, slots=True)
class MalformedAsk:
    """An ask that cannot be parsed. `reason` is constant for the same value; `remedy`: correction.

    Only the beginning of a long value is kept.
    """

    field: str
    value: str
    reason: str
    remedy: str
    too_much: bool = False
    """The ask could be parsed, but the pod has more than Escher reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", self.value[:_LONGEST_VALUE])


def too_much(field: str, found: int, most: int, what: str) -> MalformedAsk:
    """The field has `found` items of the kind `what`; Escher reads at most `most`."""
    return MalformedAsk(
        field,
        str(found),
        f"{field} has {found} {what}; at most {most} are read",
        f"write {most} {what} or fewer in {field}, and recreate the pod",
        too_much=True,
    )


def too_large(ask: GangAsk, most: int, field: str = MIN_MEMBER) -> MalformedAsk:
    """The ask is valid, but more binds than this service allows would wait for each other."""
    return MalformedAsk(
        field,
        str(ask.quorum),
        f"the gang needs more than {most} members together: each waits at the barrier with a connection to Escher, "
        "limited by connections_limit and RLIMIT_NOFILE",
        f"raise connections_limit and the open-file limit of `escher serve`, or ask for at most {most} members",
    )


_IMPOSSIBLE_CONTROLLER = MalformedAsk(
    "metadata.ownerReferences",
    "",
    "the kind, name, API group or UID of the pod's controller is empty or too long: no object can have it",
    f"create the pod from a Job or another controller, or name its gang in the label {GANG_LABEL}",
)
GATE_WITHOUT_GANG = MalformedAsk(
    "spec.schedulingGates",
    GANG_GATE,
    f"the pod has scheduling gate {GANG_GATE} but is in no gang",
    f"remove the gate, or set label {GANG_LABEL} and annotation {MIN_MEMBER}",
)


def read_gang_ask(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    controller: Controller | None,
    *,
    longest_wait: float,
    at_our_gate: bool = False,
) -> GangAsk | GroupAsk | MalformedAsk | None:
    """The gang that a pod belongs to, or None. Escher's own keys have precedence.

    `longest_wait` is kube-scheduler's httpTimeout, in seconds. kube-scheduler would abandon a longer bind while it
    still runs, so a time-out that is not below it is refused. `at_our_gate`: the pod has Escher's scheduling gate,
    which is removed only when its gang's turn comes.
    """
    name = labels.get(GANG_LABEL)
    members = annotations.get(MIN_MEMBER)
    if name is None and members is None:
        group = labels.get(POD_GROUP_LABEL)
        if group is not None:
            return GroupAsk(namespace, group, longest_wait)
        return GATE_WITHOUT_GANG if at_our_gate else None
    if name is None:
        if controller is None:
            return MalformedAsk(
                MIN_MEMBER,
                members or "",
                f"the pod has annotation {MIN_MEMBER}, but no label {GANG_LABEL} and no controller",
                f"add the label {GANG_LABEL}: <name of the gang>, or create the pod from a Job or another controller",
            )
        if not _is_well_formed(controller):
            return _IMPOSSIBLE_CONTROLLER
        key = derived_key(namespace, controller.kind, controller.name, controller.group, controller.uid)
    else:
        try:
            require_label(f"label {GANG_LABEL}", name)
        except InvalidName as error:
            return MalformedAsk(GANG_LABEL, name, str(error), f"rename the gang in label {GANG_LABEL}")
        key = GangKey(namespace, name)
    if members is None:
        return MalformedAsk(
            MIN_MEMBER,
            "",
            f"the pod has label {GANG_LABEL} but no annotation {MIN_MEMBER}",
            f'add the annotation {MIN_MEMBER}: "<how many members must be placed together>"',
        )
    quorum = _whole_number(members)
    if quorum is None or not 1 <= quorum <= LARGEST_GANG:
        return MalformedAsk(
            MIN_MEMBER,
            members,
            f"annotation {MIN_MEMBER} is {members[:40]!r}, not a whole number from 1 to {LARGEST_GANG}",
            f'write for example {MIN_MEMBER}: "8"',
        )
    seconds = annotations.get(TIMEOUT)
    if seconds is None:
        return GangAsk(key, quorum, min(DEFAULT_TIMEOUT, longest_wait * 0.9))
    wait = _whole_number(seconds)
    if wait is None or wait < 1:
        return MalformedAsk(
            TIMEOUT,
            seconds,
            f"annotation {TIMEOUT} is {seconds[:40]!r}, not a whole number of seconds, 1 or more",
            f'write for example {TIMEOUT}: "30"',
        )
    if wait >= longest_wait:
        return MalformedAsk(
            TIMEOUT,
            seconds,
            f"annotation {TIMEOUT} is {wait} s, but must be below kube-scheduler's httpTimeout of {longest_wait:g} s",
            f"write less than {longest_wait:g}, or raise httpTimeout of kube-scheduler and of Escher",
        )
    return GangAsk(key, quorum, float(wait))


@lru_cache(maxsize=4096)
def derived_key(namespace: str, kind: str, name: str, group: str, uid: str) -> GangKey:
    """The gang derived from the controller; all its members share the key.

    No labelled gang has this name, because such a label has no dot. Characters that no object's name has are
    URL-encoded: the name can be typed, and its only `@` are those of `GangKey.spellings`.
    """
    # The spelling of the core group must differ from any other group's.
    spelt = f"%{ord(CORE_GROUP[0]):X}{CORE_GROUP[1:]}" if group == CORE_GROUP else _spelt(group)
    return GangKey(namespace, _spelt(f"{kind.lower()}.{name}"), spelt, _spelt(uid))


def _spelt(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _is_well_formed(controller: Controller) -> bool:
    return (
        0 < len(controller.kind) <= LONGEST_KIND
        and 0 < len(controller.name) <= LONGEST_NAME
        and 0 < len(controller.uid) <= LONGEST_UID
        and len(controller.group) <= LONGEST_NAME
    )


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
