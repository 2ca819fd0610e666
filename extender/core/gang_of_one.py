"""Gang of one: a single pod that needs preemption is planned and queued as a gang.

Its key has a prefix with a colon, which no label of another gang can have.
"""

from __future__ import annotations

from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey

WAITS = "no node has the requested resources free: the pod waits its turn, and Escher may evict pods of lower priority"
"""The reason for kube-scheduler, instead of a gang's."""
_POD = "pod:"


def ask_of_one(namespace: str, name: str) -> GangAsk:
    """The ask of the named pod as a gang of one."""
    return GangAsk(GangKey(namespace, f"{_POD}{name}"), 1)


def lone_pod(key: GangKey) -> str:
    """The name of the pod of a gang of one; empty for any other gang."""
    # A controller's kind may be any text, but its gang has a UID.
    return key.name.removeprefix(_POD) if key.name.startswith(_POD) and not key.derived else ""


def called(key: GangKey, named: str) -> str:
    """`gang train`, or `pod web-0`, without namespace. `named`: the gang's name from `Naming`."""
    return f"pod {name}" if (name := lone_pod(key)) else f"gang {named}"


def called_in_full(key: GangKey, spoken: GangKey) -> str:
    """`gang team-a/train`, or `pod team-a/web-0`. `spoken`: the gang's key as `Naming` shows it."""
    return f"pod {key.namespace}/{name}" if (name := lone_pod(key)) else f"gang {spoken}"


def called_apart(key: GangKey) -> str:
    """The gang's description for people of another namespace."""
    return "a pod" if lone_pod(key) else "a gang"
