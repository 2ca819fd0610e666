"""Record the session of tests/conformance anew: ask a real control plane, and write what it answers.

    python -m tests.conformance.recorded
    python -m tests.conformance.recorded --to /tmp/session.jsonl

A control plane of its own is started, without nodes and without the service; then everything but etcd and
kube-apiserver is stopped, so that nobody else writes. The script (tests/conformance/recorded/script) is sent to it,
request by request. The file has no addresses, tokens and dates: what changes from run to run is a placeholder. Look at
the difference to the last recording before you keep it. The control plane is built from source the first time (Go, some
minutes); a recording takes half a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx

from extender.shipped.crds import shipped_definitions
from lab.controlplane.api import Access
from lab.controlplane.clusters import RealCluster
from loadtests.shared.progress import say
from tests.conformance.recorded.script.whole import SCRIPT
from tests.conformance.recorded.session import FILE, Exchange, Session, write

_OTHERS = ("kube-controller-manager", "kube-scheduler", "kube-scheduler-resources", "kwok")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOT_YET = b"storage is (re)initializing"
"""Said of a custom resource for as long as its definition is new."""
_WITHIN = 30.0


def record() -> list[Exchange]:
    """What a new control plane answers to the script."""
    with RealCluster.start(service=False) as cluster, closing(_client(cluster.access)) as client:
        for name in _OTHERS:
            cluster.stop_component(name)
        for definition in shipped_definitions():
            _remove(client, f"{_DEFINITIONS}/{definition['metadata']['name']}")

        def send(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
            answer = client.request(method, path, headers=headers, content=body)
            while _NOT_YET in answer.content:
                time.sleep(0.1)
                answer = client.request(method, path, headers=headers, content=body)
            return answer.status_code, answer.content

        session, found = Session(send), []
        for each in SCRIPT:
            found.append(session.exchange(each))
            time.sleep(each.pause)
        return found


def _client(access: Access) -> httpx.Client:
    headers = {"authorization": f"Bearer {access.token}", "user-agent": "recorder"}
    return httpx.Client(base_url=access.url, verify=access.trust, headers=headers, timeout=30, trust_env=False)


def _remove(client: httpx.Client, path: str) -> None:
    """The script makes the definition itself."""
    client.delete(path).raise_for_status()
    deadline = time.monotonic() + _WITHIN
    while client.get(path).status_code != 404:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is still there")
        time.sleep(0.05)


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.recorded", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--to", type=Path, default=FILE, help="the file (default: the one beside the script)")
    file: Path = parser.parse_args(given).to
    say("a real control plane starts")
    found = record()
    write(found, file)
    say(f"{len(found)} requests and answers are in {file.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
