"""What a pod says about its gang, read from label and annotations.

Knows the keys of interfaces.md section 2, and the label that names a PodGroup of scheduler-plugins. A malformed value
never raises past here: it becomes a MalformedAsk, which names the key and says how to mend it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extender.core.names import DOMAIN, GangKey
from extender.kube.names import InvalidName, require_label

GANG_LABEL = f"{DOMAIN}/gang"
MIN_MEMBER = f"{DOMAIN}/gang-min-member"
TIMEOUT = f"{DOMAIN}/gang-timeout-seconds"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
DEFAULT_TIMEOUT = 30.0
GANG_GATE = GANG_LABEL
"""Scheduling gate: its pod waits for its gang's turn with us, and kube-scheduler does not look at it until then."""
LARGEST_GANG = 10_000


@dataclass(frozen=True, slots=True)
class GangAsk:
    """A pod's wish to be placed with others: which gang, how many at least, how long members wait, in seconds."""

    key: GangKey
    quorum: int
    timeout: float = DEFAULT_TIMEOUT


@dataclass(frozen=True, slots=True)
class GroupAsk:
    """A pod's membership in a PodGroup of scheduler-plugins: the group says the quorum, if there is one."""

    namespace: str
    name: str
    longest_wait: float
    """kube-scheduler's httpTimeout, in seconds."""


@dataclass(frozen=True, slots=True)
class MalformedAsk:
    """An ask that cannot be understood. `reason` is constant for the same value; `remedy` says how to mend it."""

    field: str
    value: str
    reason: str
    remedy: str


def too_large(ask: GangAsk, most: int, field: str = MIN_MEMBER) -> MalformedAsk:
    """An ask that is understood, and that cannot be granted: so many binds cannot wait for each other here."""
    return MalformedAsk(
        field,
        str(ask.quorum),
        f"the gang needs more members together than can wait at a barrier: {most} at most, for each holds a "
        "connection of Escher's, and their number is limited (connections_limit, RLIMIT_NOFILE)",
        "raise the limit of open files of `escher serve`, and its connections_limit, or ask for at most "
        f"{most} members together",
    )


_GATE_WITHOUT_GANG = MalformedAsk(
    "spec.schedulingGates",
    GANG_GATE,
    f"scheduling gate {GANG_GATE} on a pod that is in no gang",
    f"remove the gate, or make the pod a gang's member: label {GANG_LABEL} and annotation {MIN_MEMBER}",
)


def read_gang_ask(
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    controller: tuple[str, str] | None,
    *,
    longest_wait: float,
    at_our_gate: bool = False,
) -> GangAsk | GroupAsk | MalformedAsk | None:
    """The gang that a pod belongs to, or None; our own keys go first. `controller` is its controller's (kind, name).

    `longest_wait` is kube-scheduler's httpTimeout, in seconds: a bind that waits longer would be given up by its
    caller while it still runs, so a time-out that is not below it is refused. `at_our_gate`: the pod bears our
    scheduling gate, which only a gang's turn takes off.
    """
    name = labels.get(GANG_LABEL)
    members = annotations.get(MIN_MEMBER)
    if name is None and members is None:
        group = labels.get(POD_GROUP_LABEL)
        if group is not None:
            return GroupAsk(namespace, group, longest_wait)
        return _GATE_WITHOUT_GANG if at_our_gate else None
    if name is None:
        if controller is None:
            return MalformedAsk(
                MIN_MEMBER,
                members or "",
                f"annotation {MIN_MEMBER} without label {GANG_LABEL} on a pod that has no controller",
                f"add the label {GANG_LABEL}: <name of the gang>, or create the pod from a Job or another controller",
            )
        kind, owner = controller
        # A controller's name may hold dots and is unique in its namespace per kind only; '.' cannot occur in a label.
        name = f"{kind.lower()}.{owner}"
    else:
        try:
            require_label(f"label {GANG_LABEL}", name)
        except InvalidName as error:
            return MalformedAsk(GANG_LABEL, name, str(error), f"rename the gang in label {GANG_LABEL}")
    if members is None:
        return MalformedAsk(
            MIN_MEMBER,
            "",
            f"label {GANG_LABEL} without annotation {MIN_MEMBER}",
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
        return GangAsk(GangKey(namespace, name), quorum, min(DEFAULT_TIMEOUT, longest_wait * 0.9))
    wait = _whole_number(seconds)
    if wait is None or wait < 1:
        return MalformedAsk(
            TIMEOUT,
            seconds,
            f"annotation {TIMEOUT} is {seconds[:40]!r}, not a whole number of seconds from 1",
            f'write for example {TIMEOUT}: "30"',
        )
    if wait >= longest_wait:
        return MalformedAsk(
            TIMEOUT,
            seconds,
            f"annotation {TIMEOUT} is {wait}, which is not below the scheduler's httpTimeout of {longest_wait:g} s",
            f"write less than {longest_wait:g}, or raise httpTimeout in the scheduler's configuration and in Escher's",
        )
    return GangAsk(GangKey(namespace, name), quorum, float(wait))


def _whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None
