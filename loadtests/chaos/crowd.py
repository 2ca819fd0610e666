"""Crowd: the pods of one namespace, by a watch that survives restarts of the API server."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from lab.controlplane.api import Api, ApiError
from loadtests.shared.reading import quorum_of

UNIT = "chaos.test/unit"
"""The label with the name of the unit that a pod was created in."""
_PAUSE = 0.1
Json = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A pod at its last sighting."""

    name: str
    uid: str
    unit: str
    quorum: int
    """0 for a pod without a gang."""
    node: str | None
    finished: bool
    disrupted: bool
    lasts: bool
    """It does not end without a deletion."""


def seen(pod: Json) -> Seen:
    metadata, status = pod["metadata"], pod.get("status") or {}
    gang = quorum_of(pod)
    return Seen(
        name=metadata["name"],
        uid=metadata["uid"],
        unit=(metadata.get("labels") or {}).get(UNIT, ""),
        quorum=0 if gang is None else gang[1],
        node=pod["spec"].get("nodeName"),
        finished=status.get("phase") in ("Succeeded", "Failed"),
        disrupted=any(
            each["type"] == "DisruptionTarget" and each["status"] == "True" for each in status.get("conditions") or []
        ),
        lasts="escher.dev/run-seconds" not in (metadata.get("annotations") or {}),
    )


class Crowd:
    """All fields are read and changed under `changed`, which is notified of every change."""

    def __init__(self, api: Api, path: str) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.pods: dict[str, Seen] = {}
        self.first_members_bound = 0
        """How many times a gang without bound members got its first Binding."""
        self.whole: set[str] = set()
        """Gangs whose quorum was placed at some time."""
        self.gaps = 0
        """How many times the watch had to begin again with a list."""
        self.on_finished: Callable[[Seen], None] = lambda pod: None
        self.on_gone: Callable[[Seen], None] = lambda pod: None
        self._api = api
        self._path = path
        self._placed: dict[str, set[str]] = defaultdict(set)
        self._version = ""
        self._ending = False

    def start(self) -> None:
        self._list()
        threading.Thread(target=self._follow, daemon=True, name="crowd").start()

    def end(self) -> None:
        """Ends the reports of the watch. The thread ends when its cluster does."""
        self._ending = True

    def in_part(self) -> list[str]:
        """Gangs with some placed members, but fewer than the quorum."""
        with self.changed:
            quorums = {pod.unit: pod.quorum for pod in self.pods.values() if pod.quorum}
            return [unit for unit, quorum in quorums.items() if 0 < len(self._placed[unit]) < quorum]

    def _list(self) -> None:
        answer = self._api.get(self._path)
        with self.changed:
            self._version = answer["metadata"]["resourceVersion"]
            present = {each["metadata"]["name"]: seen(each) for each in answer["items"]}
            for name, before in list(self.pods.items()):
                if name not in present or present[name].uid != before.uid:
                    self._take(before, gone=True)
            for pod in present.values():
                self._take(pod, gone=False)

    def _follow(self) -> None:
        expired = False
        while not self._ending:
            try:
                if expired:
                    self._list()
                    expired = False
                for event in self._api.watch(self._path, resourceVersion=self._version, allowWatchBookmarks=True):
                    if self._ending:
                        return
                    if event["type"] == "ERROR":
                        raise ApiError(int(event["object"].get("code", 0)), "", "")
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._take(seen(event["object"]), gone=event["type"] == "DELETED")
            except ApiError as error:
                if error.status == 410 and not expired:
                    expired = True
                    self.gaps += 1
                else:
                    threading.Event().wait(_PAUSE)
            except (httpx.HTTPError, RuntimeError):
                # The API server is away; or the client was closed with the cluster.
                threading.Event().wait(_PAUSE)

    def _take(self, pod: Seen, *, gone: bool) -> None:
        with self.changed:
            before = self.pods.get(pod.name)
            if gone:
                self.pods.pop(pod.name, None)
                if not pod.finished:
                    self._placed[pod.unit].discard(pod.name)
                self.on_gone(pod)
            else:
                self.pods[pod.name] = pod
                if pod.node is not None and (before is None or before.node is None):
                    placed = self._placed[pod.unit]
                    placed.add(pod.name)
                    self.first_members_bound += pod.quorum > 0 and len(placed) == 1
                    if 0 < pod.quorum <= len(placed):
                        self.whole.add(pod.unit)
                if pod.finished and not (before and before.finished):
                    self.on_finished(pod)
            self.changed.notify_all()
