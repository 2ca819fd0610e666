"""Switch settings: puts the safety switches of settings and of namespace labels in force.

Every change is logged. `core.safety_switches` and its callers say what each switch is for.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from extender.app.contracts.api import SafetySwitchesState
from extender.app.contracts.effects import Performer
from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Namespace
from extender.core.feedback import SwitchesChanged
from extender.core.safety_switches import FREE, Switches, switches_of

_log = structlog.get_logger(__name__)

EVERYWHERE = "everywhere"


class SwitchSettings:
    """A `ports.Sink[Namespace]`."""

    def __init__(self, scheduler: Scheduler, performer: Performer) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._unclear: dict[str, list[str]] = {}
        self._read = False

    def state(self) -> SafetySwitchesState:
        switches = self._scheduler.cache.safety_switches
        return SafetySwitchesState(
            everywhere=switches.everywhere,
            namespaces=dict(switches.labelled),
            unclear=dict(self._unclear),
            labels_are_read=self._read,
        )

    def set_everywhere(self, switches: Switches) -> None:
        """Puts the settings' switches in force."""
        if self._scheduler.cache.safety_switches.set_everywhere(switches):
            _tell(EVERYWHERE, switches)
            self._on_event(True)

    def set_uncertain(self, uncertain: bool) -> None:
        """Sets whether the known state is uncertain: then nothing is evicted."""
        self._on_event(self._scheduler.cache.safety_switches.set_uncertain(uncertain))

    def replace(self, objects: Iterable[Namespace]) -> Iterable[None]:
        self._read = True
        present = {each.name: each for each in objects}
        news = [self._take(each) for each in present.values()]
        gone = [name for name in self._scheduler.cache.safety_switches.labelled if name not in present]
        self._on_event(any([*news, *map(self._free, gone)]))
        return ()

    def upsert(self, item: Namespace) -> None:
        self._on_event(self._take(item))

    def remove(self, item: Namespace) -> None:
        self._on_event(self._free(item.name))

    def _on_event(self, news: bool) -> None:
        if news:
            self._performer.do(self._scheduler.on_event(SwitchesChanged()))

    def _take(self, namespace: Namespace) -> bool:
        switches, unclear = switches_of(namespace.labels)
        if unclear != self._unclear.get(namespace.name, []):
            _log.warning(
                "labels are invalid: the actions that they name are forbidden", namespace=namespace.name, labels=unclear
            )
            self._unclear[namespace.name] = unclear
        if not unclear:
            self._unclear.pop(namespace.name, None)
        news = self._scheduler.cache.safety_switches.set_labelled(namespace.name, switches)
        if news:
            _tell(namespace.name, switches)
        return news

    def _free(self, name: str) -> bool:
        self._unclear.pop(name, None)
        news = self._scheduler.cache.safety_switches.set_labelled(name, FREE)
        if news:
            _tell(name, FREE)
        return news


def _tell(where: str, switches: Switches) -> None:
    _log.warning("the safety switches were changed", where=where, changed=switches.off() or "all at their defaults")
