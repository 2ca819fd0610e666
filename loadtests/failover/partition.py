"""Partition: cuts one replica from the API server in the middle of a gang's Bindings, and heals it.

    with PartitionedCluster.start(nodes=8) as cluster:
        cluster.lead_behind_the_proxy()
        cut = Cut(after=3)
        cluster.proxy.hinder(cut)
        ...
        cluster.proxy.calm()                  # all that was held back arrives now

Nothing is lost and no connection closes. What was held back is delivered as it was sent, even if the sender has given
up or ended. That is worse than a real network, where the kernel's time limits apply.
"""

from __future__ import annotations

import dataclasses
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lab.controlplane.api import Access
from lab.controlplane.processes import credentials
from lab.controlplane.processes.components import SERVICE, Component
from lab.controlplane.processes.credentials import SERVICE as SERVICE_USER
from loadtests.failover.replicated import ReplicatedCluster
from loadtests.faults.draw import NONE, Fault
from loadtests.faults.proxy import Proxy

BEHIND = "replica-1"
"""The replica that reaches the API server through the proxy; the other one does so directly."""
_FOR_EVER = 1e6
_LEADS_WITHIN = 60.0


class Cut:
    """Lets `after` Bindings pass, holds the answer of the last, and then everything both ways."""

    def __init__(self, after: int) -> None:
        self.begun = threading.Event()
        self.held: list[str] = []
        """Method and path of the requests that were held back, in order."""
        self._left = after

    def of_request(self, method: str, path: str, *, watch: bool = False) -> Fault:
        if self._left:
            if not is_binding(method, path):
                return NONE
            self._left -= 1
            if self._left:
                return NONE
            self.begun.set()
            return Fault("delay-answer", seconds=_FOR_EVER)
        self.held.append(f"{method} {path}")
        return Fault("delay-request", seconds=_FOR_EVER)

    def of_event(self, path: str, type_: str, name: str) -> Fault:
        return NONE if self._left else Fault("hold-event", seconds=_FOR_EVER)


def is_binding(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding")


class PartitionedCluster(ReplicatedCluster):
    """A real control plane with one replica of the service behind a proxy."""

    def _begin(self, arguments: Sequence[str]) -> None:
        self._identity_folder = tempfile.TemporaryDirectory(prefix="escher-partition-")
        folder = Path(self._identity_folder.name)
        identity = credentials.make(folder / "pki")
        self.proxy = Proxy(self.access, certificate=identity.server_certificate, key=identity.server_key)
        self.proxy.start()
        own = Access(self.kubeconfig_of(SERVICE_USER))
        said = dataclasses.replace(identity, token=own.token)
        self._kubeconfig_behind = folder / "kubeconfig"
        credentials.write_kubeconfig(
            self._kubeconfig_behind, context="escher-partition", server=self.proxy.url, credentials=said
        )
        super()._begin(arguments)

    def _replica(self, name: str, port: int, arguments: Sequence[str]) -> Component:
        # The last --kubeconfig counts.
        more = ("--kubeconfig", str(self._kubeconfig_behind)) if name == BEHIND else ()
        return super()._replica(name, port, (*arguments, *more))

    def lead_behind_the_proxy(self) -> None:
        """Returns when the replica behind the proxy leads, and the other could take over."""
        end = time.monotonic() + _LEADS_WITHIN
        while self.holder() != BEHIND:
            if time.monotonic() > end:
                raise TimeoutError(f"{BEHIND} does not lead within {_LEADS_WITHIN:g} s")
            self.stop_component(SERVICE)
            self.start_component(SERVICE)

    def stop(self, *, keep_logs: bool = False) -> None:
        super().stop(keep_logs=keep_logs)
        if hasattr(self, "proxy"):
            self.proxy.end()
            self._identity_folder.cleanup()
