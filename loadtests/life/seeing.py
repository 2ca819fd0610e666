"""Seeing: reads the API server's objects, in one place for all checks.

It shares no code with the service, because the checks judge the service by it.
"""

from __future__ import annotations

from kubesim.apiserver.machinery.store import Store
from kubesim.kinds import NODE, POD, Json
from loadtests.shared.reading import quantity
from loadtests.shared.room import RoomWatch

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
    """In thousandths of a CPU. It reads only containers: pods here have no init containers."""
    asked = (each["resources"]["requests"].get("cpu", "0") for each in pod["spec"]["containers"])
    return sum(int(quantity(each) * 1000) for each in asked)


def free_cpu(store: Store) -> dict[str, int]:
    """In thousandths of a CPU, of each node that takes new pods."""
    return RoomWatch(store.list(NODE), store.list(POD)).free("cpu")
