"""What has happened to the pods of one namespace, as an ESL is told it: `ports.Sink` of pods. Knows no policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from extender.core.cluster import Pod
from extender.esl.base import Event, PodGone, PodSeen
from extender.kube.names import PodUid


class PodFacts:
    """Tells what has happened to each, also what was missed and only a new list shows."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.known: dict[PodUid, Pod] = {}
        self._tell = tell
        self._by_name: dict[str, PodUid] = {}

    def replace(self, objects: Iterable[Pod]) -> None:
        present = {pod.uid: pod for pod in objects}
        for missing in [pod for uid, pod in self.known.items() if uid not in present]:
            self.remove(missing)
        for pod in present.values():
            self.upsert(pod)

    def upsert(self, item: Pod) -> None:
        self.known[item.uid] = item
        self._by_name[item.name] = item.uid
        self._tell(PodSeen(item))

    def remove(self, item: Pod) -> None:
        if self.known.pop(item.uid, None) is None:
            return
        del self._by_name[item.name]
        self._tell(PodGone(item.namespace, item.name))
