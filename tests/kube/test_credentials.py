"""Addresses and credentials come from the kubernetes client's configuration, and are renewed in time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from kubernetes.aio.config import incluster_config
from structlog.testing import capture_logs

from extender.kube.client.credentials import (
    BadConfiguration,
    Credentials,
    Loader,
    Papers,
    Sources,
    default_loader,
    from_kubeconfig,
    from_service_account,
)
from extender.kube.errors import Unavailable
from tests.kube.kubeconfigs import Time, kubeconfig, plugin

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


GRANT = """
count = len(list(folder.glob("asked-*")))
(folder / f"asked-{count}").touch()
status = json.loads((folder / "status").read_text())
status["token"] = f"token-{count}"
print(json.dumps({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}))
"""


async def test_a_kubeconfig_gives_address_token_and_proxy(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, {"token": "secret"}, **{"tls-server-name": "kube", "proxy-url": "http://proxy:3128"})
    credentials = await Credentials.load(from_kubeconfig(file))
    assert credentials.address == "http://127.0.0.1:8001"
    assert (credentials.server_name, credentials.proxy) == ("kube", "http://proxy:3128")
    assert await credentials.papers() == Papers("Bearer secret", None)


async def test_the_environment_may_name_the_proxy_and_the_exceptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    credentials = await Credentials.load(from_kubeconfig(kubeconfig(tmp_path, {})))
    assert credentials.proxy == "http://proxy:3128"
    assert (await credentials.papers()).authorization is None
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert credentials.proxy is None
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.delenv("http_proxy")
    assert credentials.proxy is None


async def test_a_token_file_that_was_replaced_is_read_for_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    file = kubeconfig(tmp_path, {"tokenFile": str(tmp_path / "token")})
    credentials = await Credentials.load(from_kubeconfig(file), now=Time())
    first = await credentials.papers()
    (tmp_path / "token").write_text("second\n")
    assert (await credentials.papers()).authorization == "Bearer second"
    assert await credentials.renew(first), "somebody else has renewed it"


async def test_what_was_turned_away_is_loaded_anew_but_not_again_so_soon() -> None:
    tokens = ["first"]

    async def load(configuration: Any) -> Sources:
        configuration.host = "http://127.0.0.1:8001"
        configuration.api_key["BearerToken"] = tokens[-1]
        return Sources()

    time = Time()
    credentials = await Credentials.load(load, now=time)
    time.now += 60
    with capture_logs() as logs:
        assert not await credentials.renew(Papers("first", None))
    assert [each["event"] for each in logs] == ["the API server rejects the credentials, and there are no newer ones"]
    tokens.append("second")
    time.now += 5
    assert not await credentials.renew(Papers("first", None))
    time.now += 5
    assert await credentials.renew(Papers("first", None))
    assert (await credentials.papers()).authorization == "second"


@pytest.mark.parametrize("hours", [-10, 10])
async def test_a_clock_that_is_set_by_hours_keeps_nobody_from_loading_what_is_newer(hours: int) -> None:
    tokens = ["first"]

    async def load(configuration: Any) -> Sources:
        configuration.host = "http://127.0.0.1:8001"
        configuration.api_key["BearerToken"] = tokens[-1]
        return Sources(until=time.now + 3600)

    time = Time(datetime.now(UTC).timestamp())
    credentials = await Credentials.load(load, now=time)
    time.now += hours * 3600
    tokens.append("second")
    assert await credentials.renew(Papers("first", None))
    tokens.append("third")
    time.now += 3600
    assert (await credentials.papers()).authorization == "third"
    tokens.append("fourth")
    time.now -= 10 * 3600
    assert (await credentials.papers()).authorization == "fourth", "set back, nobody knows when it ends"


async def test_a_plugin_is_asked_again_before_its_answer_expires(tmp_path: Path) -> None:
    time = Time(datetime.now(UTC).timestamp())
    expires = datetime.fromtimestamp(time.now + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (tmp_path / "status").write_text(json.dumps({"expirationTimestamp": expires}))
    credentials = await Credentials.load(
        from_kubeconfig(kubeconfig(tmp_path, {"exec": plugin(tmp_path, GRANT)})), now=time
    )
    assert (await credentials.papers()).authorization == "Bearer token-0"
    time.now += 3500
    assert (await credentials.papers()).authorization == "Bearer token-0"
    time.now += 60
    assert (await credentials.papers()).authorization == "Bearer token-1"


async def test_the_old_token_serves_on_while_the_plugin_fails(tmp_path: Path) -> None:
    time = Time(datetime.now(UTC).timestamp())
    expires = datetime.fromtimestamp(time.now + 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    (tmp_path / "status").write_text(json.dumps({"expirationTimestamp": expires}))
    file = kubeconfig(tmp_path, {"exec": plugin(tmp_path, GRANT)})
    credentials = await Credentials.load(from_kubeconfig(file), now=time)
    (tmp_path / "status").unlink()
    time.now += 3560
    with capture_logs() as logs:
        assert (await credentials.papers()).authorization == "Bearer token-0"
        assert (await credentials.papers()).authorization == "Bearer token-0"
    assert len(logs) == 1
    (tmp_path / "status").write_text("{}")
    time.now += 11
    assert (await credentials.papers()).authorization == "Bearer token-2"


async def test_a_plugin_that_gives_nothing_is_reported(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, {"exec": plugin(tmp_path, "sys.exit(1)")})
    with pytest.raises(BadConfiguration, match="plugin"):
        await Credentials.load(from_kubeconfig(file))


async def test_the_systems_authorities_are_trusted_where_none_is_named(tmp_path: Path) -> None:
    time = Time()
    file = kubeconfig(tmp_path, {"token": "a"}, server="https://localhost:6443")
    credentials = await Credentials.load(from_kubeconfig(file), now=time)
    papers = await credentials.papers()
    time.now += 60
    assert not await credentials.renew(papers)
    assert papers.trust is not None


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("pod-token\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return tmp_path / "token"


async def test_in_a_pod_the_service_account_lets_us_in(service_account: Path) -> None:
    credentials = await Credentials.load(default_loader())
    assert credentials.address == "https://[::1]:6443"
    assert (await credentials.papers()).authorization == "bearer pod-token"


async def test_a_service_account_whose_token_cannot_be_read_is_unavailable(service_account: Path) -> None:
    filled: list[Any] = []

    async def load(configuration: Any) -> Sources:
        await from_service_account()(configuration)
        filled.append(configuration)
        hook = configuration.refresh_api_key_hook

        def expired(again: Any) -> None:
            service_account.unlink(missing_ok=True)
            hook.__closure__[0].cell_contents.token_expires_at = datetime.min
            hook(again)

        configuration.refresh_api_key_hook = expired
        return Sources()

    credentials = await Credentials.load(load)
    with pytest.raises(Unavailable, match="service account"):
        await credentials.papers()


@pytest.mark.parametrize(
    "content", ["{", "[]", "clusters: []", "current-context: x\nclusters: []\ncontexts: []\nusers: []"]
)
async def test_a_broken_kubeconfig_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / "config").write_text(content)
    with pytest.raises(BadConfiguration):
        await Credentials.load(from_kubeconfig(tmp_path / "config"))


async def test_where_a_kubeconfig_is_looked_for(
    tmp_path: Path, service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def address(loader: Loader) -> str:
        return (await Credentials.load(loader)).address

    file = kubeconfig(tmp_path, {})
    assert await address(default_loader(file)) == "http://127.0.0.1:8001"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{file}")
    assert await address(default_loader()) == "http://127.0.0.1:8001"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none")
    with pytest.raises(BadConfiguration, match=r"there is no kubeconfig at .*/none"):
        await address(default_loader())
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(BadConfiguration, match=r"there is no kubeconfig at .*/home/\.kube/config"):
        await address(default_loader())
