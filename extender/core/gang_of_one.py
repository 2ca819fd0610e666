"""A gang of one: a pod of no gang for which others are evicted is planned, and waits its turn, as a gang by itself.

It is known by the pod's name, as no other gang is: a label has no colon in it. Must not know when a pod becomes one.
"""

from __future__ import annotations

from extender.core.gang_ask import GangAsk
from extender.core.names import GangKey

WAITS = "no node has free what the pod asks for: it waits its turn, and pods of lower priority may be evicted for it"
"""What kube-scheduler is told of it, instead of what it is told of a gang."""
_POD = "pod:"


def ask_of_one(namespace: str, name: str) -> GangAsk:
    """What the pod of that name would ask for if it asked to be a gang by itself."""
    return GangAsk(GangKey(namespace, f"{_POD}{name}"), 1)


def lone_pod(key: GangKey) -> str:
    """The name of the pod whose gang of one this is; empty for any other gang."""
    # A controller's kind is any text, but its gang has a UID.
    return key.name.removeprefix(_POD) if key.name.startswith(_POD) and not key.derived else ""


def called(key: GangKey, named: str) -> str:
    """`gang train`, or `pod web-0`: for people who know the namespace. `named`: the gang's name, as `Naming` has it."""
    return f"pod {name}" if (name := lone_pod(key)) else f"gang {named}"


def called_in_full(key: GangKey, spoken: GangKey) -> str:
    """`gang team-a/train`, or `pod team-a/web-0`. `spoken`: the gang's key, as `Naming` speaks of it."""
    return f"pod {key.namespace}/{name}" if (name := lone_pod(key)) else f"gang {spoken}"


def called_apart(key: GangKey) -> str:
    """What people of another namespace are told of it."""
    return "a pod" if lone_pod(key) else "a gang"
