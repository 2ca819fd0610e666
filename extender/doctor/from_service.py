"""From the service: reads what the service reports about itself over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from cryptography import x509

from extender.doctor.facts import Part, Service

PARTS = (Part.SERVICE, Part.CERTIFICATE, Part.SAFETY_SWITCHES, Part.QUOTAS, Part.ITS_NODES)
"""The parts that are read here."""


class Answer(NamedTuple):
    """`body`: the JSON object, or empty. `certificate`: the server's (DER), over https."""

    status: int
    body: Mapping[str, Any]
    certificate: bytes | None = None


class NobodyThere(Exception):
    """No answer; `str()` says why."""


def read_service(
    address: str, get: Callable[[str], Answer], namespaces: Collection[str] = ()
) -> tuple[Service, dict[Part, str]]:
    """The service, with quotas of `namespaces`, and unread parts. `get` raises NobodyThere."""
    try:
        version = get("/version")
        name = version.body.get("version")
        if version.status != 200 or not isinstance(name, str):
            raise NobodyThere(f"the server there is not an Escher service: GET /version answers {version.status}")
        return _read(address, name, version.certificate, get, namespaces)
    except NobodyThere as error:
        return Service(address=address, unreachable=str(error)), dict.fromkeys(PARTS, "no service answers")


def _read(
    address: str, version: str, certificate: bytes | None, get: Callable[[str], Answer], namespaces: Collection[str]
) -> tuple[Service, dict[Part, str]]:
    unread: dict[Part, str] = {}
    said: dict[str, Any] = {"address": address, "version": version}
    if certificate is not None:
        said["certificate_ends"] = x509.load_der_x509_certificate(certificate).not_valid_after_utc
    ready = get("/readyz")
    if ready.status == 200:
        said["ages"] = {kind: float(age) for kind, age in (ready.body.get("ages") or {}).items()}
        said["without"] = tuple(map(str, ready.body.get("without") or ()))
        said["lost"] = {kind: _loss(each) for kind, each in (ready.body.get("lost") or {}).items()}
    else:
        said["not_ready"] = _why(ready)
    safety_switches = get("/v1/safety-switches")
    if safety_switches.status == 200:
        said["observes_only"] = bool((safety_switches.body.get("everywhere") or {}).get("observe_only"))
    else:
        unread[Part.SAFETY_SWITCHES] = _why(safety_switches)
    said["kinds_beyond"] = beyond = {}
    for namespace in namespaces:
        quota = get(f"/v1/namespaces/{namespace}/quota")
        if quota.status != 200:
            unread[Part.QUOTAS] = f"{namespace}: {_why(quota)}"
        elif (kinds := quota.body.get("waiting_kinds") or {}).get("waiting"):
            beyond[namespace] = (int(kinds.get("limit") or 0), int(kinds["waiting"]))
    # One page suffices to see whether these are the nodes of a cluster.
    nodes = get("/v1/cluster-state?limit=100")
    if nodes.status == 200:
        said["nodes"] = frozenset(str(each.get("node")) for each in nodes.body.get("items") or ())
    else:
        unread[Part.ITS_NODES] = _why(nodes)
    return Service(**said), unread


def _loss(each: Mapping[str, Any]) -> str:
    seconds = float(each.get("seconds") or 0)
    return f"for {seconds:.0f} s ({each.get('why')}): until it can, {each.get('meanwhile')}"


def _why(answer: Answer) -> str:
    detail = answer.body.get("detail")
    return f"{answer.status}: {detail}" if detail else f"it answers {answer.status}"
