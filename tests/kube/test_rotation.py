"""Certificates, tokens and authorities change under a connection: the next call and the next watch use the new ones.

The API server is played as kube-apiserver is: it looks at the certificate of the connection at every request, and
answers 401 on a connection that stays open.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from aiohttp import web
from kubernetes.aio.config import incluster_config, kube_config
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.codecs.store import ApiResourceStore
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.adapters.kubernetes.writers.writers import ApiBinder, ApiNodeStatusWriter, ApiWaker
from extender.adapters.metrics import CredentialMetrics
from extender.app.contracts.ports import EphemeralResource, PodRef, ResourceChange
from extender.core.cluster import Node
from extender.core.names import EphemeralName
from extender.kube.client import connection as connections
from extender.kube.client import credentials as loading
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import (
    BadConfiguration,
    Credentials,
    Loader,
    Sources,
    from_kubeconfig,
    from_service_account,
)
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName, PodUid
from tests.adapters.kubernetes.manifests import bookmark, encode, event, node, page, status
from tests.adapters.kubernetes.scripted_api import RecordingSink
from tests.kube.kubeconfigs import Time, kubeconfig, plugin
from tests.kube.loopback_api import serving

pytestmark = pytest.mark.anyio

POD = PodRef("default", "p", PodUid("u"))


class Authority:
    """Issues what the server shows, and certificates and keys of clients by name."""

    def __init__(self) -> None:
        self._ca = trustme.CA()
        self.pem = self._ca.cert_pem.bytes()

    def client(self, name: str, ends: datetime | None = None) -> tuple[bytes, bytes]:
        made = self._ca.issue_cert("me.example.org", common_name=name, not_after=ends)
        return made.cert_chain_pems[0].bytes(), made.private_key_pem.bytes()

    def server(self, clients: Authority | None = None, *, required: bool = False) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert("localhost").configure_cert(made)
        if clients is not None:
            clients._ca.configure_trust(made)
            made.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        return made


AUTHORITY = Authority()


class Server:
    """Answers who is asking: the certificate's name, else the token; 401 to those who are not in `known`."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.served: list[tuple[str, str]] = []
        self.turned_away = 0
        self.open: dict[int, tuple[str, Any]] = {}
        self.answers: Callable[[web.Request, str], Any] | None = None

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        who = _asker(request)
        self.open[id(request.transport)] = who, request.transport
        if who not in self.known:
            self.turned_away += 1
            return web.Response(status=401, body=encode(status(401, "Unauthorized")))
        self.served.append((request.method, who))
        if self.answers is not None:
            return await self.answers(request, who)  # type: ignore[no-any-return]
        return web.Response(body=who.encode())

    def connected_as(self, who: str) -> int:
        return sum(each == who and not transport.is_closing() for each, transport in self.open.values())


def _asker(request: web.Request) -> str:
    assert request.transport is not None
    shown = request.transport.get_extra_info("peercert")
    if shown:
        return str(dict(each[0] for each in shown["subject"])["commonName"])
    return request.headers.get("Authorization", "").lower().removeprefix("bearer ")


def put(folder: Path, content: tuple[bytes, bytes]) -> None:
    """A certificate and its key, where the kubeconfig says."""
    for name, each in zip(("client.crt", "client.key"), content, strict=True):
        put_file(folder / name, each)


def put_file(file: Path, content: bytes) -> None:
    """Replaced as a whole, as kubelet and cert-manager do."""
    file.with_suffix(".new").write_bytes(content)
    file.with_suffix(".new").replace(file)


@contextlib.asynccontextmanager
async def connected(
    server: Server, load: Callable[[str], Loader], time: Time | None = None, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Connection]:
    """A connection to that server, over TLS, with what `load` makes of the address."""
    async with (
        serving(server, trust=trust or AUTHORITY.server(AUTHORITY)) as where,
        Connection(await Credentials.load(load(where), now=time or Time())) as made,
    ):
        yield made


@contextlib.asynccontextmanager
async def turning_down(trust: ssl.SSLContext) -> AsyncIterator[str]:
    """The address of a server that tells why it ends a handshake, which asyncio's does not."""

    async def handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trust.wrap_bio(incoming, outgoing, server_side=True)
        refused = False
        while received := await reader.read(2**16):
            incoming.write(received)
            with contextlib.suppress(ssl.SSLWantReadError):
                try:
                    if not refused:
                        tls.do_handshake()
                except ssl.SSLCertVerificationError:
                    refused = True
            writer.write(outgoing.read())
            if refused:
                writer.write_eof()
        writer.close()

    server = await asyncio.start_server(handshake, "127.0.0.1", 0)
    try:
        yield f"https://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def by_files(folder: Path) -> Callable[[str], Loader]:
    """A kubeconfig that names the files of `put`, and `ca.crt`."""
    (folder / "ca.crt").write_bytes(AUTHORITY.pem)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    return lambda where: from_kubeconfig(
        kubeconfig(folder, user, **{"server": where, "certificate-authority": "ca.crt"})
    )


def by_plugin(folder: Path) -> Callable[[str], Loader]:
    """A kubeconfig whose plugin gives what is in `status`, and counts how often it is asked."""
    (folder / "ca.crt").write_bytes(AUTHORITY.pem)
    user = {"exec": plugin(folder, GIVE)}
    return lambda where: from_kubeconfig(
        kubeconfig(folder, user, **{"server": where, "certificate-authority": "ca.crt"})
    )


GIVE = """
with (folder / "asked").open("a") as asked:
    asked.write(".")
status = json.loads((folder / "status").read_text())
print(json.dumps({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": status}))
"""


def give(folder: Path, content: tuple[bytes, bytes]) -> None:
    certificate, key = (each.decode() for each in content)
    (folder / "status").write_text(json.dumps({"clientCertificateData": certificate, "clientKeyData": key}))


def asked(folder: Path) -> int:
    return len((folder / "asked").read_text())


async def at_once(connection: Connection, count: int = 8) -> set[bytes]:
    return set(await asyncio.gather(*(connection.request("GET", "/a") for _ in range(count))))


class TestACertificateFile:
    async def test_that_was_replaced_is_shown_by_the_next_call_though_connections_are_open(
        self, tmp_path: Path
    ) -> None:
        server = Server("old", "new")
        put(tmp_path, AUTHORITY.client("old"))
        async with connected(server, by_files(tmp_path)) as connection:
            assert await at_once(connection) == {b"old"}
            put(tmp_path, AUTHORITY.client("new"))
            assert await at_once(connection) == {b"new"}
            server.known.remove("old")
            assert await at_once(connection) == {b"new"}
        assert server.turned_away == 0

    async def test_that_stands_in_the_kubeconfig_is_shown_by_the_next_call(self, tmp_path: Path) -> None:
        server = Server("old", "new")

        def write(name: str, where: str) -> Path:
            texts = [base64.b64encode(each).decode() for each in (*AUTHORITY.client(name), AUTHORITY.pem)]
            user = {"client-certificate-data": texts[0], "client-key-data": texts[1]}
            return kubeconfig(tmp_path, user, **{"server": where, "certificate-authority-data": texts[2]})

        async with serving(server, trust=AUTHORITY.server(AUTHORITY)) as where:
            credentials = await Credentials.load(from_kubeconfig(write("old", where)), now=Time())
            async with Connection(credentials) as connection:
                assert await connection.request("GET", "/a") == b"old"
                for copy in list(kube_config._temp_files.values()):
                    os.unlink(copy)  # tidied up by somebody, as is done with temporary files that are days old
                write("new", where)
                assert await connection.request("GET", "/a") == b"new"

    async def test_whose_key_has_not_come_yet_is_waited_for_with_the_old_one(self, tmp_path: Path) -> None:
        server = Server("old", "new")
        put(tmp_path, AUTHORITY.client("old"))
        async with connected(server, by_files(tmp_path)) as connection:
            assert await at_once(connection) == {b"old"}
            certificate, key = AUTHORITY.client("new")
            put_file(tmp_path / "client.crt", certificate)
            with capture_logs() as logs:
                assert await at_once(connection) == {b"old"}
            assert [each["event"] for each in logs] == [
                "credentials could not be renewed; Escher keeps using the old ones"
            ]
            put_file(tmp_path / "client.key", key)
            assert await at_once(connection) == {b"new"}

    async def test_leaves_no_connection_open_that_was_made_with_its_predecessor(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "_KEEP_ALIVE", 0.05)
        server = Server("old", "new")
        put(tmp_path, AUTHORITY.client("old"))
        async with connected(server, by_files(tmp_path)) as connection:
            await at_once(connection)
            assert server.connected_as("old") > 0
            put(tmp_path, AUTHORITY.client("new"))
            while server.connected_as("old"):
                assert await connection.request("GET", "/a") == b"new"

    async def test_that_is_written_anew_with_the_same_content_costs_no_connection(self, tmp_path: Path) -> None:
        server = Server("old")
        content = AUTHORITY.client("old")
        put(tmp_path, content)
        async with connected(server, by_files(tmp_path)) as connection:
            await connection.request("GET", "/a")
            put(tmp_path, content)
            await connection.request("GET", "/a")
        assert len(server.open) == 1

    async def test_that_is_not_renewed_is_unavailable_and_read_again_every_ten_seconds(self, tmp_path: Path) -> None:
        server = Server()
        ends = datetime.now(UTC) + timedelta(days=1)
        put(tmp_path, AUTHORITY.client("old", ends))
        time = Time(ends.timestamp() - 3600)
        async with connected(server, by_files(tmp_path), time) as connection:
            time.now += 10
            with capture_logs() as logs:
                failures = await asyncio.gather(
                    *(connection.request("POST", "/a", b"{}") for _ in range(8)), return_exceptions=True
                )
            assert {type(each) for each in failures} == {Unavailable}
            assert [each["end"] for each in logs] == [ends.replace(microsecond=0).isoformat()]
            time.now += 3600
            server.known = {"new"}
            put(tmp_path, AUTHORITY.client("new"))
            assert await at_once(connection) == {b"new"}


class TestAPlugin:
    async def test_is_asked_once_by_all_whom_its_certificate_let_down(self, tmp_path: Path) -> None:
        server = Server("old")
        time = Time(datetime.now(UTC).timestamp())
        give(tmp_path, AUTHORITY.client("old"))
        async with connected(server, by_plugin(tmp_path), time) as connection:
            assert await at_once(connection, 16) == {b"old"}
            server.known = {"new"}
            give(tmp_path, AUTHORITY.client("new"))
            time.now += 60
            assert await at_once(connection, 16) == {b"new"}
            assert await at_once(connection, 16) == {b"new"}
        assert asked(tmp_path) == 2
        assert server.turned_away == 16

    async def test_is_asked_again_before_its_certificate_ends(self, tmp_path: Path) -> None:
        server = Server("old", "new")
        ends = datetime.now(UTC) + timedelta(hours=2)
        time = Time(ends.timestamp() - 3600)
        give(tmp_path, AUTHORITY.client("old", ends))
        async with connected(server, by_plugin(tmp_path), time) as connection:
            give(tmp_path, AUTHORITY.client("new", ends + timedelta(hours=1)))
            time.now += 3500
            assert await at_once(connection) == {b"old"}
            time.now += 60
            assert await at_once(connection) == {b"new"}
        assert asked(tmp_path) == 2
        assert server.turned_away == 0

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    async def test_whose_certificate_is_turned_down_in_the_handshake_is_asked_again(
        self, tmp_path: Path, version: ssl.TLSVersion
    ) -> None:
        """As by a proxy that ends TLS; kube-apiserver itself would answer 401."""
        trust = AUTHORITY.server(AUTHORITY, required=True)
        trust.maximum_version = version
        time = Time(datetime.now(UTC).timestamp())
        give(tmp_path, Authority().client("stranger"))
        async with turning_down(trust) as where:
            credentials = await Credentials.load(by_plugin(tmp_path)(where), now=time)
            async with Connection(credentials) as connection:
                give(tmp_path, Authority().client("another"))
                shown = await credentials.papers()
                time.now += 60
                with pytest.raises(Unavailable, match=r"(?i)unknown.ca"):
                    await connection.request("GET", "/a")
                assert await credentials.papers() != shown
        assert asked(tmp_path) == 2

    async def test_that_does_not_answer_holds_up_nobody_for_ever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loading, "_LOAD_WITHIN", 0.01)
        asked_for = 0

        async def load(configuration: Any) -> Sources:
            nonlocal asked_for
            asked_for += 1
            configuration.host = "http://127.0.0.1:8001"
            configuration.api_key["BearerToken"] = "a"
            if asked_for == 2:
                await asyncio.Event().wait()
            return Sources(until=0.0)

        time = Time()
        credentials = await Credentials.load(load, now=time)
        for _ in range(2):
            time.now += 20
            assert (await credentials.papers()).authorization == "a"
        assert asked_for == 3


class TestAToken:
    def tokens(self, *tokens: str) -> Callable[[str], Loader]:
        """A further token each time it is asked."""
        waiting = list(tokens)

        def at(where: str) -> Loader:
            async def load(configuration: Any) -> Sources:
                configuration.host, configuration.ca_cert_data = where, AUTHORITY.pem.decode()
                configuration.api_key["BearerToken"] = f"Bearer {waiting.pop(0)}"
                return Sources()

            return load

        return at

    async def test_that_was_turned_away_is_renewed_once_by_all_who_have_it(self) -> None:
        server, time = Server("new"), Time()
        async with connected(server, self.tokens("old", "new"), time) as connection:
            time.now += 60
            assert await at_once(connection, 16) == {b"new"}
        assert server.turned_away == 16

    async def test_that_is_of_no_more_use_than_the_last_is_tried_once(self) -> None:
        server, time = Server(), Time()
        async with connected(server, self.tokens("old", "wrong"), time) as connection:
            time.now += 60
            with pytest.raises(Unavailable, match="does not accept the service's credentials: Unauthorized"):
                await connection.request("POST", "/a", b"{}")
        assert server.turned_away == 2

    async def test_in_a_file_is_read_for_the_next_call(self, tmp_path: Path) -> None:
        server = Server("old", "new")
        put_file(tmp_path / "token", b"old")
        (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)

        def load(where: str) -> Loader:
            cluster = {"server": where, "certificate-authority": "ca.crt"}
            return from_kubeconfig(kubeconfig(tmp_path, {"tokenFile": "token"}, **cluster))

        async with connected(server, load) as connection:
            assert await connection.request("GET", "/a") == b"old"
            put_file(tmp_path / "token", b"new\n")
            assert await connection.request("GET", "/a") == b"new"
        assert len(server.open) == 1, "a token needs no new connection"

    async def test_in_a_file_that_is_written_over_with_the_time_of_another_is_seen_all_the_same(
        self, tmp_path: Path
    ) -> None:
        """As `cp -p` and rsync do it: the same file, often of the same length."""
        file = kubeconfig(tmp_path, {"tokenFile": "token"})
        (tmp_path / "token").write_text("old")
        credentials = await Credentials.load(from_kubeconfig(file), now=Time())
        before = (tmp_path / "token").stat()
        while (tmp_path / "token").stat().st_ctime_ns == before.st_ctime_ns:
            (tmp_path / "token").write_text("new")
            os.utime(tmp_path / "token", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await credentials.papers()).authorization == "Bearer new"

    async def test_of_a_service_account_is_read_for_the_next_call_and_so_is_its_authority(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As kubelet does it: all files of a volume are exchanged at once, by a link."""

        def volume(name: str, token: str, authority: bytes) -> None:
            (tmp_path / name).mkdir()
            (tmp_path / name / "token").write_text(token)
            (tmp_path / name / "ca.crt").write_bytes(authority)
            (tmp_path / "next").symlink_to(name)
            (tmp_path / "next").rename(tmp_path / "data")

        volume("first", "old", AUTHORITY.pem)
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "data" / "token"))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "data" / "ca.crt"))
        server, other = Server("old", "new"), Authority()

        def load(where: str) -> Loader:
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", where.rpartition(":")[2])
            return from_service_account()

        shown = AUTHORITY.server()
        async with connected(server, load, trust=shown) as connection:
            assert await connection.request("GET", "/a") == b"old"
            other._ca.issue_cert("localhost").configure_cert(shown)
            volume("second", "new", AUTHORITY.pem + other.pem)
            assert await connection.request("GET", "/a") == b"new"


class TestAnAuthority:
    async def test_that_joins_the_bundle_is_trusted_and_one_that_leaves_it_no_more(self, tmp_path: Path) -> None:
        """Rotation as Kubernetes documents it: both in the bundle, a new server certificate, the old one out."""
        old, new = AUTHORITY, Authority()
        bundle = tmp_path / "ca.crt"
        bundle.write_bytes(old.pem)
        file = kubeconfig(
            tmp_path, {"token": "t"}, **{"server": "https://localhost:0", "certificate-authority": "ca.crt"}
        )
        shown = old.server()
        server = Server("t")
        async with serving(server, trust=shown) as where:
            file.write_text(file.read_text().replace("https://localhost:0", where))
            async with Connection(await Credentials.load(from_kubeconfig(file), now=Time())) as connection:
                assert await at_once(connection) == {b"t"}
                put_file(bundle, old.pem + new.pem)
                assert await at_once(connection) == {b"t"}
                new._ca.issue_cert("localhost").configure_cert(shown)
                assert await at_once(connection, 16) == {b"t"}
                put_file(bundle, new.pem)
                assert await at_once(connection) == {b"t"}
                old._ca.issue_cert("localhost").configure_cert(shown)
                put_file(bundle, new.pem + b"\n")
                with pytest.raises(Unavailable, match="certificate"):
                    await connection.request("GET", "/a")

    async def test_that_no_file_tells_is_loaded_when_the_server_cannot_be_verified(self) -> None:
        """The call is not lost, for nothing of it was sent."""
        server, time, new = Server("t"), Time(), Authority()
        loads = 0

        def load(where: str) -> Loader:
            async def load(configuration: Any) -> Sources:
                nonlocal loads
                configuration.host = where
                configuration.ca_cert_data = (AUTHORITY if loads == 0 else new).pem.decode()
                configuration.api_key["BearerToken"] = "t"
                loads += 1
                return Sources()

            return load

        async with connected(server, load, time, trust=new.server()) as connection:
            with pytest.raises(Unavailable, match="certificate"):
                await connection.request("POST", "/a", b"{}")
            time.now += 60
            posts = (connection.request("POST", "/a", b"{}") for _ in range(16))
            assert set(await asyncio.gather(*posts)) == {b"t"}
        assert loads == 2
        assert server.served == [("POST", "t")] * 16

    async def test_that_cannot_be_read_leaves_the_last_one_in_force(self, tmp_path: Path) -> None:
        server = Server("old")
        put(tmp_path, AUTHORITY.client("old"))
        async with connected(server, by_files(tmp_path)) as connection:
            for broken in (b"", b"-----BEGIN CERTIFICATE-----\n"):
                put_file(tmp_path / "ca.crt", broken)
                assert await connection.request("GET", "/a") == b"old"
            (tmp_path / "ca.crt").unlink()
            assert await connection.request("GET", "/a") == b"old"
        assert len(server.open) == 1


class TestAKubeconfig:
    async def test_whose_current_context_is_switched_later_leaves_us_where_we_are(self, tmp_path: Path) -> None:
        file = kubeconfig(tmp_path, {"token": "mine"})
        credentials = await Credentials.load(from_kubeconfig(file), now=Time())
        content = yaml.safe_load(file.read_text())
        content["users"].append({"name": "other", "user": {"token": "others"}})
        content["clusters"].append({"name": "other", "cluster": {"server": "http://127.0.0.1:8002"}})
        content["contexts"].append({"name": "other", "context": {"cluster": "other", "user": "other"}})
        content["users"][0]["user"]["token"] = "renewed"
        file.write_text(yaml.safe_dump({**content, "current-context": "other"}))
        assert (await credentials.papers()).authorization == "Bearer renewed"
        assert credentials.address == "http://127.0.0.1:8001"

    async def test_that_names_another_server_later_gives_it_nothing(self, tmp_path: Path) -> None:
        file = kubeconfig(tmp_path, {"token": "mine"})
        credentials = await Credentials.load(from_kubeconfig(file), now=Time())
        kubeconfig(tmp_path, {"token": "others"}, server="http://127.0.0.1:8002")
        with capture_logs() as logs:
            assert (await credentials.papers()).authorization == "Bearer mine"
        assert "restart Escher to connect there" in logs[0]["why"]


class TestAWatch:
    async def follow(self, connection: Connection, until: asyncio.Event) -> RecordingSink[Node]:
        async def sleep(seconds: float) -> None:
            await asyncio.sleep(0)

        sink: RecordingSink[Node] = RecordingSink()
        following = asyncio.create_task(Reflector(connection, kinds.nodes(), sink, sleep=sleep).run())
        await until.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        return sink

    def watched(self, turn: Callable[[], None], until: asyncio.Event) -> Callable[[web.Request, str], Any]:
        """A list; then a watch with one event, at whose end `turn` is called; then one that stays open."""
        said: list[str] = []

        async def answer(request: web.Request, who: str) -> web.StreamResponse:
            if "watch" not in request.query:
                return web.Response(body=page([node(f"listed-as-{who}")], 10))
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            version = 20 * (1 + len(said))
            added = event("ADDED", node(f"watched-as-{who}", version - 9))
            await response.write(added + b"\n" + bookmark(version) + b"\n")
            said.append(who)
            if len(said) == 1:
                turn()
                return response
            # What is written last is read by the other side at its own time.
            asyncio.get_running_loop().call_later(0.05, until.set)
            await until.wait()
            return response

        return answer

    async def test_goes_on_with_the_new_certificate_where_the_last_one_ended(self, tmp_path: Path) -> None:
        server, until = Server("old", "new"), asyncio.Event()
        put(tmp_path, AUTHORITY.client("old"))
        server.answers = self.watched(lambda: put(tmp_path, AUTHORITY.client("new")), until)
        async with connected(server, by_files(tmp_path)) as connection:
            sink = await self.follow(connection, until)
        assert sink.log == ["replace listed-as-old", "upsert watched-as-old", "upsert watched-as-new"]
        assert server.turned_away == 0

    async def test_that_is_turned_away_comes_back_with_what_the_plugin_gives_then(self, tmp_path: Path) -> None:
        server, until, time = Server("old"), asyncio.Event(), Time(datetime.now(UTC).timestamp())
        give(tmp_path, AUTHORITY.client("old"))

        def turn() -> None:
            server.known = {"new"}
            give(tmp_path, AUTHORITY.client("new"))
            time.now += 60

        server.answers = self.watched(turn, until)
        async with connected(server, by_plugin(tmp_path), time) as connection:
            sink = await self.follow(connection, until)
        assert sink.log == ["replace listed-as-old", "upsert watched-as-old", "upsert watched-as-new"]
        assert (server.turned_away, asked(tmp_path)) == (1, 2)

    async def test_that_meets_a_server_that_it_cannot_verify_loads_the_authorities(self) -> None:
        server, time, new = Server("t"), Time(), Authority()
        authorities = [AUTHORITY, new]

        def load(where: str) -> Loader:
            async def load(configuration: Any) -> Sources:
                configuration.host, configuration.ca_cert_data = where, authorities.pop(0).pem.decode()
                configuration.api_key["BearerToken"] = "t"
                return Sources()

            return load

        async with connected(server, load, time, trust=new.server()) as connection:
            time.now += 60
            got: list[bytes] = []
            for _ in range(2):
                with contextlib.suppress(Unavailable):
                    async with aclosing(connection.lines("/w", silence=5.0)) as lines:
                        got += [line async for line in lines]
        assert authorities == []
        assert server.served == [("GET", "t")]


@pytest.mark.parametrize(
    "call",
    [
        lambda c: ApiBinder(c).bind(POD, NodeName("n")),
        lambda c: ApiBinder(c).node_of(POD),
        lambda c: ApiWaker(c).wake(POD, "t"),
        lambda c: ApiNodeStatusWriter(c).advertise(NodeName("n"), {}, []),
        lambda c: ApiResourceStore(c).create(EphemeralResource(EphemeralName("default", "r"), {})),
        lambda c: ApiResourceStore(c).merge(EphemeralName("default", "r"), ResourceChange({})),
        lambda c: ApiResourceStore(c).delete(EphemeralName("default", "r")),
        lambda c: c.request("GET", "/api/v1/nodes"),
    ],
    ids=["bind", "node of", "wake", "advertise", "create", "merge", "delete", "get"],
)
async def test_401_is_never_a_refusal_of_what_was_asked_for(tmp_path: Path, call: Callable[[Connection], Any]) -> None:
    put(tmp_path, AUTHORITY.client("unknown"))
    async with connected(Server(), by_files(tmp_path)) as connection:
        with pytest.raises(Unavailable, match="does not accept the service's credentials"):
            await call(connection)


async def test_a_configuration_that_is_wrong_from_the_start_is_reported(tmp_path: Path) -> None:
    put(tmp_path, (AUTHORITY.client("a")[0], AUTHORITY.client("b")[1]))
    with pytest.raises(BadConfiguration, match="cannot be used"):
        await Credentials.load(by_files(tmp_path)("https://localhost:6443"))


async def test_metrics_say_when_credentials_end_and_how_often_nothing_newer_was_found(tmp_path: Path) -> None:
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    put(tmp_path, AUTHORITY.client("a", ends))
    time = Time(datetime.now(UTC).timestamp())
    credentials = await Credentials.load(by_files(tmp_path)("https://localhost:6443"), now=time)
    registry = CollectorRegistry()
    registry.register(CredentialMetrics(credentials))
    assert registry.get_sample_value("escher_credentials_end_timestamp_seconds") == ends.timestamp()
    assert registry.get_sample_value("escher_credentials_not_renewed_total") == 0
    time.now += 60
    assert not await credentials.renew(await credentials.papers())
    (tmp_path / "client.key").write_bytes(b"")
    await credentials.papers()
    assert registry.get_sample_value("escher_credentials_not_renewed_total") == 2
    assert registry.get_sample_value("escher_credentials_end_timestamp_seconds") == ends.timestamp()


async def test_a_token_that_says_no_end_has_none_in_the_metrics(tmp_path: Path) -> None:
    credentials = await Credentials.load(from_kubeconfig(kubeconfig(tmp_path, {"token": "t"})), now=Time())
    registry = CollectorRegistry()
    registry.register(CredentialMetrics(credentials))
    assert registry.get_sample_value("escher_credentials_end_timestamp_seconds") is None
