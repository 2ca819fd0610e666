"""The reference extender understands what a real kube-scheduler sends, and decides by its few rules."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.shipped.errors import ClusterError
from extender.shipped.progress import Progress
from lab.controlplane.processes.go_module import GoModule
from loadtests import reference
from tests.adapters.http.test_golden import NAMES, REQUESTS, recorded, verb_of

Json = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> Path:
    return reference.built(Progress())


@pytest.fixture(scope="module")
def client(program: Path) -> Iterator[httpx.Client]:
    """Of one that pretends to bind."""
    with reference.running(program, "--bind-without-writing") as url, client_of(url) as made:
        yield made


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=f"{url}/scheduler", trust_env=False)


def pod(**requests: str) -> Json:
    return {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"resources": {"requests": requests}}]}}


def node(name: str, **allocatable: str) -> Json:
    return {"metadata": {"name": name}, "status": {"allocatable": allocatable}, "spec": {"unknown": "kept"}}


def asked_of(client: httpx.Client, pod: Json, *nodes: Json) -> Json:
    answer = client.post("/filter", json={"Pod": pod, "Nodes": {"items": nodes}, "NodeNames": None})
    assert answer.status_code == 200, answer.text
    said: Json = answer.json()
    return said


@pytest.mark.e2e
@pytest.mark.parametrize("request_file", REQUESTS, ids=NAMES)
def test_a_recorded_request_is_answered_as_kube_scheduler_reads_it(client: httpx.Client, request_file: Path) -> None:
    verb, (request, accepted) = verb_of(request_file), recorded(request_file)
    answer = client.post(f"/{verb}", content=request)
    assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(answer.content)))
    said, asked = answer.json(), json.loads(request)
    if verb == "filter":
        # Recorded with an extender that turned away every node from this pod alone.
        everything = json.loads(accepted) | {key: asked[key] for key in ("Nodes", "NodeNames")} | {"FailedNodes": {}}
        assert said == everything
    elif verb == "prioritize":
        names = asked["NodeNames"] or [each["metadata"]["name"] for each in asked["Nodes"]["items"]]
        assert [each["Host"] for each in said] == names
        assert all(0 <= each["Score"] <= 10 for each in said)
    else:
        assert answer.content == accepted


@pytest.mark.e2e
def test_whole_nodes_pass_if_they_are_as_large_as_the_pod(client: httpx.Client) -> None:
    large, small = node("large", cpu="2", memory="4Gi"), node("small", cpu="250m", memory="4e9")
    said = asked_of(client, pod(cpu="0.5", memory="1G"), large, small)
    assert said["Nodes"]["items"] == [large]
    assert said["FailedNodes"] == {"small": "too small"}
    assert said["NodeNames"] is None


@pytest.mark.e2e
def test_a_resource_that_a_node_has_not_is_none_of_it(client: httpx.Client) -> None:
    has, lacks = node("has", **{"escher.dev/a.b": "2"}), node("lacks", cpu="8")
    assert asked_of(client, pod(**{"escher.dev/a.b": "1"}), has, lacks)["FailedNodes"] == {"lacks": "too small"}


@pytest.mark.e2e
def test_what_one_node_offers_is_looked_for_there_alone(program: Path) -> None:
    key = "escher.dev/default.data1"

    def asked(client: httpx.Client, **requests: str) -> Json:
        said: Json = client.post(
            "/filter", json={"Pod": pod(**requests), "Nodes": None, "NodeNames": ["a", "b", "c"]}
        ).json()
        return said

    with reference.running(program, "--offer", f"{key}=b") as url, client_of(url) as client:
        found = asked(client, cpu="1", **{key: "1"})
        assert (found["NodeNames"], found["FailedNodes"]) == (["b"], {"a": "too small", "c": "too small"})
        assert asked(client, cpu="1")["NodeNames"] == ["a", "b", "c"]
    with pytest.raises(ClusterError, match="is not RESOURCE=NODE"), reference.running(program, "--offer", key):
        pass


@pytest.mark.e2e
def test_the_score_of_a_node_is_always_the_same(client: httpx.Client) -> None:
    def scores(*names: str) -> dict[str, int]:
        answer = client.post("/prioritize", json={"Pod": pod(), "Nodes": None, "NodeNames": names})
        return {each["Host"]: each["Score"] for each in answer.json()}

    names = [f"node-{number}" for number in range(100)]
    assert scores(*names) == scores(*reversed(names))
    assert set(scores(*names).values()) == set(range(11))


@pytest.mark.e2e
@pytest.mark.parametrize("body", [b"", b"{", b'{"Pod":7}', b'{"Pod":{},"Nodes":{"items":[1]}}'])
def test_what_is_no_call_is_refused(client: httpx.Client, body: bytes) -> None:
    assert client.post("/filter", content=body).status_code == 400


@pytest.mark.e2e
def test_bind_is_refused_unless_it_was_told_to_pretend(program: Path) -> None:
    with reference.running(program) as url, client_of(url) as client:
        said = client.post("/bind", json={"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "node"}).json()
    assert "writes no Bindings" in said["Error"]


@pytest.mark.e2e
def test_it_says_what_it_can_be_told_and_listens_on_loopback(program: Path) -> None:
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stderr
    assert '(default "127.0.0.1:9090")' in help_text
    assert "-bind-without-writing" in help_text
    with reference.running(program) as url:
        assert url.startswith("http://127.0.0.1:")


@pytest.mark.e2e
def test_why_it_does_not_start_is_told(program: Path) -> None:
    with pytest.raises(ClusterError, match="invalid port"), reference.running(program, listen="127.0.0.1:99999"):
        pass


@pytest.mark.e2e
def test_it_has_gos_own_form_and_go_finds_nothing_in_it() -> None:
    go = reference.MODULE.find_go()
    for command in (["gofmt", "-l", "."], ["go", "vet", "."]):
        tool = Path(go).with_name(command[0])
        found = subprocess.run(
            [shutil.which(tool) or command[0], *command[1:]], cwd=reference.SOURCE, capture_output=True, text=True
        )
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_it_needs_nothing_but_gos_own_library() -> None:
    assert sorted(each.name for each in reference.SOURCE.iterdir() if each.suffix in (".mod", ".sum")) == ["go.mod"]
    assert "require" not in (reference.SOURCE / "go.mod").read_text()


def test_a_build_that_fails_tells_what_the_compiler_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "go"
    compiler.write_text('#!/bin/sh\n[ "$1" = version ] && exit 0\necho "main.go:1: what is this" >&2; exit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = GoModule(tmp_path, {"thing": "."}, (), purpose="the thing")
    with pytest.raises(ClusterError, match=r"could not build thing; .*\nmain\.go:1: what is this"):
        module.build(Progress())


def test_what_has_been_built_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.go").write_text("package main\n")
    compiler = tmp_path / "go"
    # `go build -o THERE .`
    compiler.write_text('#!/bin/sh\n[ "$1" = version ] && exit 0\necho built >> "$LOG"; : > "$3"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = GoModule(source, {"thing": "."}, (), purpose="the thing")
    first = module.build(Progress())
    assert ((first / "thing").is_file(), module.build(Progress())) == (True, first)
    (source / "main.go").write_text("package main // changed\n")
    assert module.build(Progress()) != first
    assert (tmp_path / "log").read_text() == "built\n" * 2
