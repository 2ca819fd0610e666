"""The plugin: as others use it, with the example of the documentation, and as our own tests do."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
import yaml

from extender.kube.errors import Gone
from kubesim.apiserver.machinery.store import DELETED, Change
from kubesim.emptying import NotEmpty, empty
from kubesim.kinds import CONFIG_MAP
from kubesim.local import LocalCluster
from kubesim.virtual import VirtualCluster

ROOT = Path(__file__).parents[2]
PODS = "/api/v1/namespaces/default/pods"
POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}

DEFINITION: dict[str, Any] = {
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def _example() -> dict[str, str]:
    """The files of the documentation's example, by name."""
    section = (ROOT / "docs" / "embedded.md").read_text().split("## In tests\n")[1].split("\n## ")[0]
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", section, re.DOTALL))


def test_the_example_of_the_documentation_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Nothing but what it needs, of all the plugins that are installed here.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = _example()
    assert set(files) == {"conftest.py", "test_operator.py"}
    for name, code in files.items():
        pytester.makepyfile(**{name.removesuffix(".py"): code})
    outcome = pytester.runpytest_subprocess(
        *("-p", "kubesim.pytest_plugin", "-p", "anyio.pytest_plugin", "-p", "no:cacheprovider", "-v")
    )
    outcome.assert_outcomes(passed=files["test_operator.py"].count("def test_"))


def test_it_is_offered_to_whoever_installs_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    offered = project["entry-points"]["pytest11"]
    assert {name: import_module(module).__name__ for name, module in offered.items()} == offered


def test_it_costs_other_test_runs_no_imports() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys; import kubesim.pytest_plugin; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split()
    assert not {"uvicorn", "msgspec", "aiohttp", "kubesim.embedded", "extender.kube.client.requests"}.intersection(
        loaded
    )


def _names(cluster: LocalCluster, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.ask("GET", path)["items"]}


class TestEmptying:
    SYSTEM = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})

    def _fill(self, cluster: LocalCluster) -> None:
        cluster.add_nodes(2)
        cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        held = {"name": "held", "finalizers": ["example.com/hold"]}
        cluster.ask("POST", "/api/v1/namespaces/team/configmaps", {"metadata": held})
        job = {"template": {"spec": {"restartPolicy": "Never", **POD["spec"]}}, "completions": 3, "parallelism": 3}
        cluster.ask("POST", "/apis/batch/v1/namespaces/team/jobs", {"metadata": {"name": "job"}, "spec": job})
        cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
        cluster.ask(
            "POST",
            "/apis/example.com/v1/namespaces/default/things",
            {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {**held, "name": "thing"}},
        )
        cluster.ask("POST", PODS, POD)
        labels = {"metadata": {"labels": {"mark": "mine"}}}
        cluster.ask("PATCH", "/api/v1/namespaces/default", labels, content_type="application/merge-patch+json")

    @pytest.mark.parametrize("time", ["once", "and once more"])
    def test_nothing_of_a_test_is_there_for_the_next(self, kubesim_cluster: LocalCluster, time: str) -> None:
        cluster = kubesim_cluster
        assert _names(cluster, "/api/v1/nodes") == set()
        self._fill(cluster)
        cluster.ask("DELETE", "/api/v1/namespaces/team")
        cluster.empty()
        assert _names(cluster, "/api/v1/nodes") == _names(cluster, "/api/v1/pods") == set()
        assert _names(cluster, "/api/v1/namespaces") == self.SYSTEM
        assert "mark" not in cluster.ask("GET", "/api/v1/namespaces/default")["metadata"].get("labels", {})
        with pytest.raises(Gone):
            cluster.ask("GET", "/apis/example.com/v1/namespaces/default/things")

    def test_the_scheduler_knows_nothing_of_what_was_there(self, kubesim_cluster: LocalCluster) -> None:
        cluster = kubesim_cluster
        for _ in range(3):
            cluster.add_nodes(1, {"cpu": "1"})
            whole = {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]}
            cluster.ask("POST", PODS, {"metadata": {"name": "whole"}, "spec": whole})
            deadline = monotonic() + 10
            while cluster.ask("GET", f"{PODS}/whole")["status"]["phase"] != "Running":
                assert monotonic() < deadline
            cluster.empty()


def test_the_kubeconfig_lets_its_reader_in_and_nobody_else(kubesim_cluster: LocalCluster) -> None:
    assert kubesim_cluster.kubeconfig.stat().st_mode & 0o077 == 0
    read = yaml.safe_load(kubesim_cluster.kubeconfig.read_text())
    assert read["clusters"][0]["cluster"]["server"] == kubesim_cluster.url
    with httpx.Client(base_url=kubesim_cluster.url, verify=False, trust_env=False) as client:
        assert client.get(PODS).status_code == 401
        bearer = {"authorization": f"Bearer {read['users'][0]['user']['token']}"}
        assert client.get(PODS, headers=bearer).status_code == 200


def test_a_cluster_that_has_ended_says_so(tmp_path: Path) -> None:
    with LocalCluster.start(tmp_path) as cluster:
        assert _names(cluster, PODS) == set()
    with pytest.raises(RuntimeError, match="has ended"):
        cluster.ask("GET", PODS)


@pytest.mark.anyio
async def test_a_day_in_virtual_time_takes_no_time(kubesim_virtual: VirtualCluster) -> None:
    began, cluster = monotonic(), kubesim_virtual
    [name] = await cluster.add_nodes(1)
    pod = {**POD, "metadata": {"name": "p", "annotations": {"kubesim/run-seconds": "3600"}}}
    await cluster.ask("POST", PODS, pod)
    await asyncio.sleep(60)
    found = await cluster.ask("GET", f"{PODS}/p")
    assert (found["spec"]["nodeName"], found["status"]["phase"]) == (name, "Running")
    await asyncio.sleep(86_400)
    assert (await cluster.ask("GET", f"{PODS}/p"))["status"]["phase"] == "Succeeded"
    assert monotonic() - began < 60


@pytest.mark.anyio
async def test_what_is_made_again_and_again_is_named(kubesim_virtual: VirtualCluster) -> None:
    api, stubborn = kubesim_virtual.cluster.api, {"metadata": {"name": "stubborn"}}
    first = api.store.back_up()

    def make_anew(change: Change) -> None:
        if change.kind is CONFIG_MAP and change.type == DELETED:
            tasks.append(asyncio.ensure_future(kubesim_virtual.ask("POST", CONFIG_MAP.path("default"), stubborn)))

    tasks: list[asyncio.Future[Any]] = []
    api.store.subscribe(make_anew)
    await kubesim_virtual.ask("POST", CONFIG_MAP.path("default"), stubborn)
    with pytest.raises(NotEmpty, match="still there after 10 s: configmaps default/stubborn"):
        await empty(api, first)
    await asyncio.gather(*tasks)
