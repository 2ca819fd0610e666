"""What Kubernetes has and the embedded cluster has not: it is said, and so that kubectl shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubesim.apiserver.serving import absent
from kubesim.kinds import Kind
from tests.kubesim.apiserver.apis import PODS, Api, pod
from tests.kubesim.standing import Standing, standing

NOT_HERE = 'not in the embedded cluster; "--real" has it'
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", absent.KINDS, ids=repr)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_kind_that_is_not_here_says_so(kind: Kind, method: str) -> None:
    for path in (kind.path("default"), kind.path("default", "x"), kind.path()):
        status, reason, message = Api().refused(method, path, {} if method == "POST" else None)
        assert (status, reason, message) == (404, "NotFound", f"{kind!r}: {NOT_HERE}")


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["attach", "exec", "log", "portforward", "proxy", "ephemeralcontainers", "resize"])
async def test_a_subresource_that_is_not_here_says_so(name: str) -> None:
    api = Api()
    api.ok("POST", PODS, pod())
    assert api.refused("GET", f"{PODS}/p/{name}") == (501, "NotImplemented", f"pods/{name}: {NOT_HERE}")
    assert api.refused("POST", f"{PODS}/p/{name}")[0] == 501


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{PODS}/p/proxy/some/where", 501),
        ("/api/v1/nodes/n/proxy/metrics", 501),
        ("/api/v1/watch/pods", 404),
        ("/api/v1/watch/namespaces/default/pods", 404),
        ("/apis/batch/v1/namespaces/default/cronjobs/c/status", 404),
    ],
)
async def test_what_is_below_it_says_so_too(path: str, status: int) -> None:
    assert Api().refused("GET", path)[0] == status
    assert NOT_HERE in Api().refused("GET", path)[2]


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/api/v1/gadgets", "/apis/batch/v1/gadgets", "/api/v1/nodes/n/gadget"])
async def test_what_nobody_has_is_not_found(path: str) -> None:
    assert "--real" not in Api().refused("GET", path)[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    home: Path = tmp_path_factory.mktemp("standing")
    with standing(home) as stands:
        stands.kubectl("create", "-f", "-", says=pod() | {"apiVersion": "v1", "kind": "Pod"})
        yield stands


@pytest.mark.parametrize(
    "words",
    [
        "get deployments",
        "get sts x",
        "get ingress -A",
        "get pvc",
        "get clusterroles",
        "create deployment x --image=i",
        "delete deploy x",
        "scale deploy/x --replicas=2",
        "logs p",
        "exec p -- ls",
        "attach p",
        "debug p --image=i",
        "create token default",
        "apply -f -",
    ],
)
def test_kubectl_shows_what_is_not_here(server: Standing, words: str) -> None:
    done = server.kubectl(*words.split(), says=DEPLOYMENT if words.endswith(" -") else None)
    assert done.returncode == 1
    assert NOT_HERE in done.stderr


def test_kubectl_lists_only_what_is_here(server: Standing) -> None:
    listed = server.kubectl("api-resources", "-o", "name").stdout.split()
    assert "pods" in listed
    assert "deployments.apps" not in listed
    assert server.kubectl("get", "all").returncode == 0


def test_kubectl_learns_who_it_is_and_that_it_may_do_everything(server: Standing) -> None:
    assert server.kubectl("auth", "can-i", "create", "pods").stdout == "yes\n"
    assert server.kubectl("auth", "can-i", "get", "/metrics").stdout == "yes\n"
    assert "*.*" in server.kubectl("auth", "can-i", "--list").stdout
    who = server.kubectl("auth", "whoami").stdout
    assert "admin" in who
    assert "system:masters" in who


def test_kubectl_explains_fields_of_fields(server: Standing) -> None:
    image = server.kubectl("explain", "pod.spec.containers.image").stdout
    assert "FIELD: image <string>" in image
    assert "Container image name" in image
    assert "topologySpreadConstraints\t<[]TopologySpreadConstraint>" in server.kubectl("explain", "pod.spec").stdout
    assert "backoffLimit\t<integer>" in server.kubectl("explain", "job.spec").stdout
