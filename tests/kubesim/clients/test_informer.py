"""Informers of client-go, in a Go program that knows nothing of the embedded cluster, against its API server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubesim.kinds import Json
from tests.controlplane.deadline import eventually
from tests.kubesim.apiserver.apis import definition, ephemeral
from tests.kubesim.standing import Standing, standing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

MODULE = Path(__file__).with_name("informer")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Go keeps what it built: the first time takes minutes, the next one a second."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    made = tmp_path_factory.mktemp("go") / "informer"
    subprocess.run([go, "build", "-mod=readonly", "-o", str(made), "."], cwd=MODULE, check=True, timeout=1100)
    return made


@contextmanager
def _running(program: Path, server: Standing, log: Path) -> Iterator[None]:
    with log.open("w") as file, log.with_suffix(".err").open("w") as errors:
        command = [str(program), str(server.kubeconfig), "default"]
        running = subprocess.Popen(command, stdout=file, stderr=errors, env={**os.environ, "NO_PROXY": "*"})
        try:
            yield
            assert running.poll() is None, "it still runs"
        finally:
            running.terminate()
            running.wait(20)


def _map(value: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": value}}


def test_informers_hear_of_all_events_over_dropped_watches_too(program: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def apply(body: Json) -> None:
        assert server.kubectl("apply", "-f", "-", says=body).returncode == 0

    def hears(*lines: str) -> None:
        def heard() -> bool:
            return set(lines) <= set(log.read_text().splitlines())

        eventually(heard, what=f"{lines}")

    with standing(tmp_path) as server:
        apply(definition())
        apply(_map("a"))
        apply(ephemeral("early"))
        with _running(program, server, log):
            hears("found configmap/m a", "found ephemeralresource/early 2", "synced")
            apply(_map("b"))
            apply(ephemeral("late"))
            hears("changed configmap/m b", "added ephemeralresource/late 2")
            # An etcd that was restored: watches end, and versions that were known can not be asked for any more.
            server.do(lambda api: api.restore(api.store.back_up()))
            apply(_map("c"))
            apply(ephemeral("late", nodes={"n": 7}))
            hears("changed configmap/m c", "changed ephemeralresource/late 7")
            server.kubectl("delete", "ephemeralresource", "late")
            server.kubectl("delete", "configmap", "m")
            hears("deleted ephemeralresource/late 7", "deleted configmap/m c")
        lines = log.read_text().splitlines()
        assert len(lines) == len(set(lines)), "each event is told once"
