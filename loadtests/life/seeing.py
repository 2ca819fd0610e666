"""Seeing: what objects of the API server say, asked in one place.

Shares no code with the service: this is what others judge it by.
"""

from __future__ import annotations

from kubesim.kinds import NODE, POD, Json
from kubesim.store import Store
from loadtests.reading import quantity
from loadtests.room import RoomWatch

CREW_LABEL = "life/crew"


def uid(found: Json) -> str:
    said: str = found["metadata"]["uid"]
    return said


def name(found: Json) -> str:
    said: str = found["metadata"]["name"]
    return said


def label(found: Json, key: str) -> str:
    said: str = (found["metadata"].get("labels") or {}).get(key, "")
    return said


def annotation(found: Json, key: str) -> str:
    said: str = (found["metadata"].get("annotations") or {}).get(key, "")
    return said


def is_running(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def cpu_of(pod: Json) -> int:
    """In thousandths. Only what is made here is read: one container or more, no init containers."""
    asked = (each["resources"]["requests"].get("cpu", "0") for each in pod["spec"]["containers"])
    return sum(int(quantity(each) * 1000) for each in asked)


def free_cpu(store: Store) -> dict[str, int]:
    """Of each node that takes new pods, in thousandths."""
    return RoomWatch(store.list(NODE), store.list(POD)).free("cpu")
