"""The earlier version that tests go from, and back to: its definitions, what it wrote, and its service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.controlplane.api import Api
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import credentials
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.upgrade import scene

COMMIT = "40693b0"
"""One shortly before EscherPolicies of the types queue, shares and signal."""
ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "former"
WRITTEN = FOLDER / "written.json"
DEFINITIONS = tuple(sorted((FOLDER / "crds").glob("*.yaml")))


def written() -> dict[str, list[Json]]:
    """The objects that its service left, by the collection that they are in."""
    found: dict[str, list[Json]] = json.loads(WRITTEN.read_text())
    return found


def put_back(api: Api) -> None:
    """The objects are in the cluster, which has the former definitions, as if its service had just left them."""
    found = written()
    uids = {each["metadata"]["uid"]: _made(api, path, each) for path in scene.COLLECTIONS for each in found[path]}
    for each in found[scene.PODS]:
        # They name pods by UIDs, which are others now.
        said = json.dumps(each["metadata"].get("annotations", {}))
        now = re.sub("|".join(uids), lambda old: uids[old[0]], said)
        if now != said:
            api.patch(f"{scene.PODS}/{each['metadata']['name']}", {"metadata": {"annotations": json.loads(now)}})


def _made(api: Api, collection: str, each: Json) -> str:
    """It is there, and this is its UID."""
    metadata = {key: value for key, value in each["metadata"].items() if key != "uid"}
    made = api.post(collection, {**each, "metadata": metadata})
    if collection in (scene.RESOURCES, scene.POLICIES):
        api.patch(f"{collection}/{metadata['name']}/status", {"status": each["status"]})
    return str(made["metadata"]["uid"])


def is_in_history() -> bool:
    """Whether this is a checkout with its history."""
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{COMMIT}^{{commit}}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def unpacked(folder: Path) -> Path:
    """Its code is in that folder."""
    folder.mkdir()
    packed = ["git", "-C", str(ROOT), "archive", COMMIT, "extender", "escher_k8s", "kubesim", "deploy"]
    with subprocess.Popen(packed, stdout=subprocess.PIPE) as archive:
        subprocess.run(["tar", "x", "-C", str(folder)], stdin=archive.stdout, check=True)
    assert archive.returncode == 0
    return folder


@contextmanager
def service(cluster: RealCluster, code: Path, settings: Path, log: Path) -> Iterator[None]:
    """Its service runs within the block, at the address that kube-scheduler calls, and is then asked to end."""
    where = ("--host", "127.0.0.1", "--port", str(cluster.port("service")))
    access = ("--kubeconfig", str(cluster.kubeconfig_of(credentials.SERVICE)))
    command = [sys.executable, "-m", "extender", "serve", *access, *where, "--config", str(settings)]
    with (
        log.open("ab") as told,
        subprocess.Popen(command, cwd=code, env={**os.environ, "PYTHONPATH": str(code)}, stderr=told) as run,
    ):
        try:
            eventually(lambda: _ready(cluster.service_url), within=60, what="the former service being ready")
            yield
        finally:
            run.terminate()
            run.wait(timeout=30)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError):
        return False
