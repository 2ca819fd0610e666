"""Live pods: asks the API server whether a pod still lives. One request, no retry."""

from __future__ import annotations

import msgspec

from extender.app.contracts.ports import PodRef
from extender.kube.client.requests import Requests, address
from extender.kube.errors import Gone, Unavailable
from extender.kube.nesting import Decoder

_ENDED = ("Succeeded", "Failed")


class _Identity(msgspec.Struct):
    uid: str


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Identity
    status: _Status = msgspec.field(default_factory=_Status)


_pods = Decoder(_Pod)


class ApiLivePods:
    """`ports.LivePods`, by a GET of the pod."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def lives(self, pod: PodRef) -> bool:
        """As the port says. A terminating pod still lives: its containers may still run."""
        try:
            body = await self._requests.request(
                "GET", address("api", "v1", "namespaces", pod.namespace, "pods", pod.name)
            )
            found = _pods.decode(body)
        except Gone:
            return False
        except msgspec.DecodeError as error:
            raise Unavailable(f"the answer is not a pod: {error}") from error
        return found.metadata.uid == pod.uid and found.status.phase not in _ENDED
