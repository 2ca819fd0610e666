"""An unmodified Kopf operator, in a process of its own, against the embedded API server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kubesim.kinds import Json
from tests.controlplane.deadline import eventually
from tests.kubesim.apiserver.apis import definition, ephemeral
from tests.kubesim.standing import Standing, standing

pytestmark = pytest.mark.longer

OPERATOR = Path(__file__).with_name("operator_with_kopf.py")
COPIES: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "copies.tests"},
    "spec": {
        "group": "tests",
        "scope": "Namespaced",
        "names": {"plural": "copies", "kind": "Copy"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"text": {"type": "string"}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def _copy(text: str) -> Json:
    return {"apiVersion": "tests/v1", "kind": "Copy", "metadata": {"name": "c"}, "spec": {"text": text}}


@contextmanager
def _operator(server: Standing, log: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", str(OPERATOR)]
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "NO_PROXY": "*"}
    with log.open("w") as file:
        running = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)


def _get(server: Standing, *words: str) -> str:
    return server.kubectl("get", *words).stdout.strip()


def test_a_kopf_operator_handles_what_is_created_changed_and_deleted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with standing(tmp_path) as server:
        for each in (definition(), COPIES):
            assert server.kubectl("apply", "-f", "-", says=each).returncode == 0
        server.kubectl("apply", "-f", "-", says=ephemeral("early"))
        with _operator(server, log):
            _follows_ephemeral_resources(server)
            _follows_its_own_kind(server)
        lines = log.read_text().splitlines()
        assert not [line for line in lines if "[ERROR" in line or "Traceback" in line], "\n".join(lines)


def _follows_ephemeral_resources(server: Standing) -> None:
    def copied(name: str) -> Any:
        return _get(server, "configmap", f"{name}-copy", "-o", "jsonpath={.data.nodes}")

    eventually(lambda: copied("early") == "{'n': 2}", what="what was there before is handled")
    server.kubectl("apply", "-f", "-", says=ephemeral("late"))
    eventually(lambda: copied("late") == "{'n': 2}", what="what is created is handled")
    server.do(lambda api: api.restore(api.store.back_up()))
    server.kubectl("apply", "-f", "-", says=ephemeral("late", nodes={"n": 5}))
    eventually(lambda: copied("late") == "{'n': 5}", what="what is changed is handled, over watches that were dropped")
    assert server.kubectl("delete", "ephemeralresource", "late", "--timeout=20s").returncode == 0
    assert not copied("late"), "its finalizer held it until the handler was done"


def _follows_its_own_kind(server: Standing) -> None:
    server.kubectl("apply", "-f", "-", says=_copy("one"))

    def status(path: str) -> str:
        return _get(server, "copies", "c", "-o", f"jsonpath={{.status.{path}}}")

    eventually(lambda: (status("phase"), status("copy.text")) == ("Copied", "one"), what="a handler writes the status")
    eventually(lambda: int(status("times") or 0) >= 2, what="timers run")
    server.kubectl("apply", "-f", "-", says=_copy("two"))
    eventually(lambda: status("change") == "one to two", what="a field is followed")
    told = _get(server, "events", "-o", "jsonpath={.items[*].reason}").split()
    assert "Copied" in told
    assert server.kubectl("delete", "copies", "c", "--timeout=20s").returncode == 0
