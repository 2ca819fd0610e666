"""The commands for people, against the real service: what they print, what they refuse, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from extender import __version__
from extender.adapters.http.call_admission import Entry
from extender.adapters.http.server.listening import http_server
from extender.adapters.http.server.tls import ServedCertificates
from extender.app.admin.authorization import Authorization
from extender.app.contracts.ports import EphemeralResource
from extender.cli.common import api
from extender.cli.main import app
from extender.core.gang_ask import GangAsk, derived_key
from extender.core.names import EphemeralName
from extender.core.policies.policy_types import DataLocality, PolicyInForce
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.kube.errors import Unavailable
from extender.kube.names import NodeName
from extender.settings.settings import Settings
from tests.adapters.http.fakes import listening, on_loopback, service
from tests.adapters.http.known import APP_A, Known
from tests.app.fakes import Fault
from tests.app.world import World
from tests.builders import gang_pods, pod
from tests.cli.certificates import Certificates
from tests.cli.conftest import Escher

pytestmark = pytest.mark.anyio


async def test_a_resource_is_set_shown_and_deleted(escher: Escher, world: World) -> None:
    done = await escher("resource", "set", "data1", "4", "--node", "n2", "--namespace", "team", "--ttl", "600")
    assert (done.exit_code, done.stdout) == (0, "escher.dev/team.data1 on n2 4\n")
    listed = await escher("resource", "list", "-n", "team")
    assert "escher.dev/team.data1" in listed.stdout
    state = await escher("state", "--resource", "escher.dev/team.data1")
    assert state.stdout.split()[6:] == ["n2", "escher.dev/team.data1", "4", "4"]
    gone = await escher("resource", "delete", "data1", "-n", "team")
    assert (gone.exit_code, gone.stdout) == (0, "data1 is gone\n")
    assert (await escher("resource", "delete", "data1", "-n", "team")).exit_code == 0
    assert "no ephemeral resources" in (await escher("resource", "list", "-n", "team")).stdout
    assert "no node has a matching" in (await escher("state", "--resource", "escher.dev/team.data1")).stdout


async def test_a_resource_is_exported_and_its_export_ended(escher: Escher, world: World) -> None:
    setting = ("resource", "set", "data1", "4", "--node", "n2", "--namespace", "team")
    assert (await escher(*setting, "--export-to", "a", "--export-to", "b")).exit_code == 0
    assert world.api.objects["team", "data1"].exports == ("a", "b")
    await escher(*setting)
    assert world.api.objects["team", "data1"].exports == ("a", "b")
    await escher(*setting, "--export-to", "")
    assert not world.api.objects["team", "data1"].exports


async def test_a_deleted_resource_that_finalizers_hold_is_told(escher: Escher, world: World) -> None:
    await escher("resource", "set", "data1", "4", "--node", "n2", "--namespace", "team")
    world.api.keep(replace(world.api.objects["team", "data1"], finalizers=("x.io/keep",)), spec=False)
    await asyncio.sleep(0)
    done = await escher("resource", "delete", "data1", "-n", "team")
    assert (done.exit_code, done.stdout) == (0, "data1 is on no node, and held by finalizers: x.io/keep\n")
    again = await escher("resource", "set", "data1", "4", "--node", "n2", "--namespace", "team")
    assert again.exit_code == 1
    assert "its finalizer x.io/keep holds it; set it once it is gone" in again.stderr


@pytest.mark.parametrize(
    ("options", "nodes"),
    [
        (["--everywhere"], {"n1": 1, "n2": 1, "n3": 1}),
        (["--everywhere", "--num-nodes", "1"], {"n1": 1}),
        (["--available", "cpu=8", "--available", "memory=1Gi"], {"n1": 1, "n2": 1, "n3": 1}),
        (["--label", "zone=a", "--num-nodes", "2"], {"n1": 1, "n2": 1}),
        (["--node", "n1", "--shared"], {"n1": 1}),
        (["--node", "n1", "--owner", "p/u"], {"n1": 1}),
    ],
)
async def test_nodes_are_chosen_in_every_form(escher: Escher, options: list[str], nodes: dict[str, int]) -> None:
    done = await escher("resource", "set", "r", "1", *options, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == nodes


async def test_what_would_be_is_told_and_nothing_changes(escher: Escher, world: World, tmp_path: Path) -> None:
    fits = await escher("what-if", "--gang", "train", "--size", "3", "--each", "cpu=8")
    assert (fits.exit_code, fits.stdout.splitlines()[0]) == (0, "all would fit")
    assert [line.split()[0] for line in fits.stdout.splitlines()[2:]] == [f"default/train-{i}" for i in range(3)]
    drained = await escher("what-if", "--gang", "train", "--size", "3", "--each", "cpu=8", "--drain", "n2")
    assert drained.exit_code == 1
    assert "2 of 3" in drained.stdout
    assert "would help: " in drained.stdout
    more = await escher(
        "what-if", "--gang", "train", "--size", "3", "--each", "cpu=8", "--drain", "n2", "--add-like", "n1", "--json"
    )
    assert (more.exit_code, json.loads(more.stdout)["fits"]) == (0, True)
    world.start_pod("p", {"cpu": 1000}, on="n1")
    asked = tmp_path / "question.yaml"
    asked.write_text("changes: [{op: drain, node: n1}]")
    moved = await escher("what-if", "-f", str(asked))
    assert moved.stdout.split()[-2] == "team/p"
    assert not world.scheduler.cache.gangs.by_key
    assert not any(node.unschedulable for node in world.scheduler.cache.nodes.values())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "there is no question"),
        (["--gang", "train"], "give --each"),
        (["--gang", "train", "--each", "cpu"], "write RESOURCE=QUANTITY"),
        (["-f", "/nowhere"], "No such file"),
    ],
)
async def test_a_question_that_is_none_is_wrong_use(escher: Escher, arguments: list[str], told: str) -> None:
    refused = await escher("what-if", *arguments)
    assert refused.exit_code == 2
    assert told in refused.stderr


async def test_a_pods_own_node_comes_from_its_environment(escher: Escher, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = await escher("resource", "set", "r", "1")
    assert refused.exit_code == 1
    assert "names no node" in refused.stderr
    monkeypatch.setenv("ESCHER_NODE", "n3")
    monkeypatch.setenv("ESCHER_NAMESPACE", "team")
    assert (await escher("resource", "set", "r", "1")).stdout == "escher.dev/team.r on n3 1\n"
    assert (await escher("resource", "set", "r", "0")).stdout == "escher.dev/team.r on no node\n"


async def test_a_dry_run_says_so_and_changes_nothing(escher: Escher, world: World) -> None:
    assert "would be on n1 1" in (await escher("resource", "set", "r", "1", "--node", "n1", "--dry-run")).stdout
    assert world.api.objects == {}
    await escher("resource", "set", "r", "1", "--node", "n1")
    assert "would be gone" in (await escher("resource", "delete", "r", "--dry-run")).stdout
    assert world.api.objects != {}


async def test_a_refusal_is_the_services_own_words_and_exit_code_1(escher: Escher, world: World) -> None:
    refused = await escher("resource", "set", "r", "1", "--node", "n9")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "escher: node_spec: there is no node n9\n"
    conflict = await escher("resource", "set", "r", "1", "--node", "n1", "--if-version", "7")
    assert (conflict.exit_code, "does not exist; expected version 7" in conflict.stderr) == (1, True)
    world.api.faults.append(Fault(Unavailable("no route")))
    assert "no route" in (await escher("resource", "set", "r", "1", "--node", "n1")).stderr
    assert (await escher("gang", "get", "absent")).exit_code == 1
    assert "there is no unfinished pod absent" in (await escher("explain", "pod", "absent")).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["resource", "set", "r"],
        ["resource", "set", "r", "-1", "--node", "n1"],
        ["resource", "set", "r", "1.5", "--node", "n1"],
        ["resource", "set", "r", "1", "--node", "n1", "--everywhere"],
        ["resource", "set", "r", "1", "--label", "zone"],
        ["resource", "set", "r", "1", "--available", "=2"],
        ["resource", "set", "r", "1", "--node", "n1", "--owner", "pod"],
        ["explain", "node", "n1"],
    ],
)
async def test_wrong_use_is_exit_code_2(escher: Escher, world: World, arguments: list[str]) -> None:
    assert (await escher(*arguments)).exit_code == 2
    assert world.api.calls == []


async def test_the_state_shows_units_as_people_write_them(escher: Escher, world: World) -> None:
    await escher("resource", "set", "r", "5", "--node", "n1", "-n", "team")
    for number in range(4):
        world.start_pod(f"p{number}", {"cpu": 500, "escher.dev/team.r": 1}, on="n1")
    told = (await escher("state", "--node", "n1")).stdout.splitlines()
    assert [line.split() for line in told[1:3]] == [
        ["n1", "cpu", "8", "6"],
        ["memory", "32.0", "GiB", "32.0", "GiB"],
    ]
    assert told[-1].split(maxsplit=3)[3] == "team/p0 (1), team/p1 (1), team/p2 (1) and 1 more"
    as_json = json.loads((await escher("state", "--node", "n1", "--json")).stdout)
    assert as_json["items"][0]["available"]["escher.dev/team.r"] == 1


async def test_gangs_are_listed_shown_and_explained(escher: Escher, world: World) -> None:
    assert "has no gangs" in (await escher("gang", "list")).stdout
    members = gang_pods("train", 4, {"cpu": 8000})
    for member in members:
        world.do(world.scheduler.observe(member))
    world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
    listed = (await escher("gang", "list")).stdout.splitlines()[1].split()
    assert listed[:5] == ["train", "waiting", "4", "4", "0"]
    assert json.loads((await escher("gang", "list", "--json")).stdout)["items"][0]["quorum"] == 4
    shown = (await escher("gang", "get", "train")).stdout
    assert "gang default/train: waiting, quorum 4" in shown
    assert "train-3" in shown
    assert json.loads((await escher("gang", "get", "train", "--json")).stdout)["phase"] == "waiting"
    told = (await escher("explain", "gang", "train")).stdout
    assert "gang default/train waits: 3 of 4 members fit" in told
    assert "what would help:" in told
    world.add_nodes("n4")
    world.do(world.scheduler.filter(members[0], list(world.scheduler.cache.nodes)))
    assert "its reservation is held until" in (await escher("gang", "get", "train")).stdout
    for member in members:
        world.do(world.scheduler.forget(member))


async def test_gangs_that_share_a_name_are_listed_and_asked_for_by_longer_ones(escher: Escher, world: World) -> None:
    for group in ("batch", "batch.example.org"):
        ask = GangAsk(derived_key("default", "Job", "tr%in", group, f"uid-{group}"), 2, 4.0)
        world.do(world.scheduler.observe(pod(f"of-{group}", gang=ask)))
    names = ["job.tr%25in@batch", "job.tr%25in@batch.example.org"]
    assert [line.split()[0] for line in (await escher("gang", "list")).stdout.splitlines()[1:]] == names
    for name in names:
        assert f"gang default/{name}: gathering, quorum 2" in (await escher("gang", "get", name)).stdout
        assert f"gang default/{name} waits" in (await escher("explain", "gang", name)).stdout
    several = await escher("gang", "get", "job.tr%25in")
    assert (several.exit_code, f"ask for one of {names[0]}, {names[1]}" in several.stderr) == (1, True)
    for each in list(world.scheduler.cache.pods.values()):
        world.do(world.scheduler.forget(each))


async def test_a_pod_is_explained_by_groups_of_nodes(escher: Escher, world: World) -> None:
    world.start_pod("p", {"escher.dev/team.r": 1})
    told = (await escher("explain", "pod", "p", "-n", "team")).stdout
    assert "pod team/p waits: none of 3 nodes can run it" in told
    assert "n1, n2, n3" in told
    assert "- set escher.dev/team.r to 1 on n1: escher resource set --namespace team r 1 --node n1" in told
    assert "each of these was tried on a copy of the cluster" in told
    as_json = json.loads((await escher("explain", "pod", "p", "-n", "team", "--json")).stdout)
    # Of what is not heeded only an embedded cluster of this machine tells.
    assert (as_json["waits"], as_json["unheeded"]) == (True, [])


async def test_since_when_a_pod_waits_is_told_and_since_when_for_this_reason(escher: Escher, world: World) -> None:
    waits = pod("p", {"escher.dev/team.r": 1}, namespace="team", created=60.0, labels={"app": "web"})
    world.do(world.scheduler.govern("team", "near", PolicyInForce(DataLocality(("r",)), selector=())))
    world.do(world.scheduler.observe(waits))
    assert "(since 1970-01-01 00:01:00 UTC)\n" in (await escher("explain", "pod", "p", "-n", "team")).stdout
    world.do(world.scheduler.filter(waits, list(world.scheduler.cache.nodes)))
    told = " ".join((await escher("explain", "pod", "p", "-n", "team")).stdout.split())
    assert re.search(r"it has waited for \d+ h .*, for this reason for \d+ h .* \(since ", told)


async def test_brackets_in_texts_are_shown_and_lists_come_page_by_page(escher: Escher, world: World) -> None:
    world.api.put(EphemeralResource(EphemeralName("team", "bad"), {}, problem="spec.nodes[n1] is -1"))
    world.api.resources_watch.deliver()
    for number in range(600):
        world.api.put(EphemeralResource(EphemeralName("team", f"r{number}"), {}))
    world.api.resources_watch.deliver()
    assert "spec.nodes[n1] is -1" in (await escher("resource", "list", "-n", "team")).stdout
    assert len(json.loads((await escher("resource", "list", "-n", "team", "--json")).stdout)["items"]) == 601


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.ConnectError("refused"), "cannot be reached: refused. Give its address with --url"),
        (httpx.ReadTimeout("slow"), "did not answer within 60 s"),
        (httpx.Response(200, text="<html>"), "is not an Escher service"),
        (httpx.Response(502, text="<html>"), "the service answered 502 Bad Gateway"),
        (httpx.Response(502, json=["x"]), "the service answered 502 Bad Gateway"),
    ],
)
def test_whatever_answers_there_is_a_clear_word(monkeypatch: pytest.MonkeyPatch, answer: Any, told: str) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    client = httpx.Client(base_url="http://there", transport=httpx.MockTransport(handle))
    monkeypatch.setattr(api, "connect", lambda url, trust: client)
    result = CliRunner().invoke(app, ["state"])
    assert result.exit_code == 1
    assert told in result.stderr


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8080",
        "http://",
        "http://[::1",
        "http://h:port",
        "http://h:99999",
        "https://h/?a=b",
        "ftp://h",
        "http://a b",
    ],
)
def test_an_address_that_is_none_is_one_line_and_wrong_use(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("ESCHER_URL", url)
    result = CliRunner().invoke(app, ["state"])
    told = f"escher: --url (or ESCHER_URL) is {url!r}, not a service URL; write one such as http://127.0.0.1:8080\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--node", "n1", "--everywhere"], "--node and --everywhere cannot be combined"),
        (["--node", "n1", "--owner", "pod"], "--owner is 'pod'"),
        (["--label", "zone"], "--label is 'zone'"),
    ],
)
def test_a_commands_own_wrong_use_is_told_before_that_of_its_connection(
    monkeypatch: pytest.MonkeyPatch, options: list[str], told: str
) -> None:
    monkeypatch.setattr(api, "connect", lambda url, trust: pytest.fail("nobody must be called"))
    for connection in (["--url", "nowhere"], ["--url", "http://there"], ["--tls-ca", "absent.pem"]):
        result = CliRunner().invoke(app, ["resource", "set", "r", "1", *options, *connection])
        assert result.exit_code == 2
        assert told in " ".join(result.stderr.replace("\u2502", "").split())
        assert "ESCHER_" not in result.stderr


def test_the_connection_is_closed_when_the_command_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"items": [], "continue": None}))
    client = httpx.Client(base_url="http://there", transport=transport)
    monkeypatch.setattr(api, "connect", lambda url, trust: client)
    assert CliRunner().invoke(app, ["gang", "list"]).exit_code == 0
    assert client.is_closed


@asynccontextmanager
async def over_tls(world: World, files: Certificates) -> AsyncIterator[str]:
    """The world's service over https, for clients with a certificate of the authority; its address."""
    listener = listening()
    server = http_server(
        service(management=world.management(), entry=Entry(certificates=True)),
        Settings.model_validate({}),
        certificates=ServedCertificates(files.certificate, files.key, files.ca),
    )
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


async def test_a_service_over_tls_is_called_with_the_certificate_that_it_requires(
    escher: Escher, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Certificates(tmp_path)
    ca, certificate, key = f"--tls-ca={files.ca}", f"--tls-certificate={files.certificate}", f"--tls-key={files.key}"
    async with over_tls(world, files) as url:
        commands = [
            ["resource", "set", "data1", "4", "--node", "n2"],
            ["resource", "list"],
            ["resource", "delete", "data1"],
            ["state"],
            ["gang", "list"],
        ]
        for command in commands:
            done = await escher(*command, "--url", url, ca, certificate, key)
            assert done.exit_code == 0, done.stderr
        for command in (["gang", "get", "g"], ["explain", "pod", "p"], ["explain", "gang", "g"]):
            done = await escher(*command, "--url", url, ca, certificate, key)
            assert (done.exit_code, "there is no" in done.stderr) == (1, True), done.stderr
        stranger = await escher("state", "--url", url, certificate, key)
        assert (stranger.exit_code, "Name the CA to trust with --tls-ca or ESCHER_TLS_CA" in stranger.stderr) == (
            1,
            True,
        )
        without = await escher("state", "--url", url, ca)
        assert without.exit_code == 1
        assert "this connection presented no certificate" in without.stderr
        for variable, file in (("CA", files.ca), ("CERTIFICATE", files.certificate), ("KEY", files.key)):
            monkeypatch.setenv(f"ESCHER_TLS_{variable}", str(file))
        monkeypatch.setenv("ESCHER_URL", url)
        assert (await escher("state")).exit_code == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ca": "absent"}, r"--tls-ca \(or ESCHER_TLS_CA\) is \S*/absent: No such file or directory"),
        ({"ca": "garbage"}, r"--tls-ca \(or ESCHER_TLS_CA\) is \S*/garbage: it has no certificate \(PEM\)"),
        ({"certificate": "garbage", "key": "key"}, r"--tls-certificate .*/garbage: it has no certificate \(PEM\)"),
        (
            {"certificate": "certificate", "key": "other_key"},
            r"--tls-key .*/other.key: it has no private key .*/tls.crt",
        ),
        ({"certificate": "certificate"}, r"--tls-certificate .*/tls.crt: it has no private key \(PEM\) .*/tls.crt"),
        ({"certificate": "certificate", "key": "absent"}, r"--tls-key .*/absent: No such file or directory"),
        (
            {"key": "key"},
            r"--tls-key .* is \S*, but there is no --tls-certificate: give both or neither",
        ),
    ],
)
def test_certificates_that_cannot_be_used_are_one_line_and_wrong_use(
    tmp_path: Path, given: dict[str, str], told: str
) -> None:
    files = Certificates(tmp_path)
    options = [f"--tls-{option}={getattr(files, which)}" for option, which in given.items()]
    result = CliRunner().invoke(app, ["state", "--url", "https://127.0.0.1:9", *options])
    assert result.exit_code == 2
    assert re.fullmatch(f"escher: {told}\n", result.stderr)


def test_certificates_for_an_address_without_tls_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    """Whoever names an authority believes that what is said is for its ears only."""
    result = CliRunner().invoke(app, ["state", "--tls-ca", str(Certificates(tmp_path).ca)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "http://127.0.0.1:8080 is not https" in result.stderr


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"escher {__version__}\n")


@pytest.mark.parametrize(
    "command",
    [
        ["resource", "set"],
        ["resource", "list"],
        ["resource", "delete"],
        ["state"],
        ["gang", "list"],
        ["gang", "get"],
        ["explain", "pod"],
        ["explain", "gang"],
    ],
)
def test_every_help_has_an_example(command: list[str]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert f"Example: escher {' '.join(command)}" in " ".join(result.stdout.split())


async def test_a_quota_is_shown_with_what_waits_and_the_domain(escher: Escher, world: World) -> None:
    shown = (await escher("quota", "--namespace", "team")).stdout.splitlines()
    assert shown[1].split() == ["resources", "0", "-", "0"]
    domain = Allowance({Counted.RESOURCES: 1, Counted.UNITS: 9}, {"zone": ("a", "b")}, ("r*",))
    world.isolating.set(UNLIMITED, {"team": domain})
    await world.set("r", 2, "n1")
    world.api.put(EphemeralResource(EphemeralName("team", "r2"), {NodeName("n1"): 1}))
    await world.quiet(0.1)
    shown = (await escher("quota", "--namespace", "team")).stdout.splitlines()
    assert [line.split() for line in shown[1:3]] == [["resources", "1", "1", "1"], ["units", "2", "9", "0"]]
    assert shown[-2:] == ["it may use 3 nodes, those with zone=a|b", "names of its resources match r*"]
    as_json = json.loads((await escher("quota", "--namespace", "team", "--json")).stdout)
    assert as_json["domain"] == {"nodes": {"zone": ["a", "b"]}, "names": ["r*"], "node_count": 3}
    world.start_pod("p", {"escher.dev/team.r2": 1})
    told = " ".join((await escher("explain", "pod", "p", "--namespace", "team")).stdout.split())
    assert "escher.dev/team.r2 is not fully in force: exceeded quota of namespace team" in told


async def test_a_service_that_asks_for_tokens_is_shown_one_from_a_file_or_the_environment(
    escher: Escher, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, file = Known(), tmp_path / "token"
    file.write_text("admin-token\n")
    authority = Authorization(known, asyncio.get_running_loop().time, 10.0)
    async with on_loopback(service(management=world.management(), entry=Entry(authority=authority))) as port:
        url = f"http://127.0.0.1:{port}"
        assert (await escher("resource", "list", "--url", url, "--token-file", str(file))).exit_code == 0
        nobody = await escher("resource", "list", "--url", url)
        assert nobody.exit_code == 1
        assert "a token is needed" in nobody.stderr
        assert "--token-file, ESCHER_TOKEN_FILE or ESCHER_TOKEN" in nobody.stderr
        monkeypatch.setenv("ESCHER_TOKEN", "a-token")
        other = await escher("resource", "list", "--url", url)
        assert other.exit_code == 1
        assert f"{APP_A!r} may not list ephemeralresources.escher.dev in namespace default" in other.stderr
        monkeypatch.delenv("ESCHER_TOKEN")
        away = await escher("resource", "list", "--url", url, "--token-file", str(tmp_path / "none"))
        assert (away.exit_code, "No such file" in away.stderr) == (2, True)
        assert "admin-token" not in nobody.stderr + other.stderr + away.stderr
