"""Honesty: an event on each new pod with fields that have no effect in the embedded cluster.

Real clusters have no such controller. `kubesim.heeding` lists the fields.
"""

from __future__ import annotations

from kubesim.apiserver.machinery.store import Change
from kubesim.controllers.controller import Controller
from kubesim.heeding import unheeded
from kubesim.kinds import EVENTS, POD

NOT_HEEDED = "NotHeeded"
"""The reason of these events."""
_REPORTER = "embedded-cluster"
_LONGEST_NOTE = 1024


class Honesty(Controller):
    kinds = (POD,)

    def hear(self, change: Change) -> None:
        if change.type == "ADDED" and (said := unheeded(change.object.get("spec") or {})):
            self.start(self._tell(change, "; ".join(said)))

    async def _tell(self, change: Change, note: str) -> None:
        metadata = change.object["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        event = {
            "metadata": {"name": f"{name}.{change.version:x}-not-heeded", "namespace": namespace},
            "eventTime": self._clock.micro_stamp(),
            "reportingController": _REPORTER,
            "reportingInstance": _REPORTER,
            "action": "Admitting",
            "reason": NOT_HEEDED,
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
                          "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "note": note if len(note) <= _LONGEST_NOTE else f"{note[: _LONGEST_NOTE - 4]} ...",
            "type": "Warning",
        }  # fmt: skip
        await self.create(EVENTS, event)
