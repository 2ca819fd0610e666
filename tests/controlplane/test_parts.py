"""State file, ports, credentials, children, folders: each does what the cluster tool relies on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from extender.shipped import crds, places, versions
from extender.shipped.errors import ClusterError, WrongUse
from extender.shipped.versions import Kubernetes
from lab.controlplane import nodes
from lab.controlplane.processes import binaries, children, components, credentials, folders, ports, state
from lab.controlplane.processes.components import ClusterSpec, Component
from tests.controlplane.deadline import eventually


def some_state(folder: Path, *, pid: int, ports: dict[str, int] | None = None) -> state.ClusterState:
    return state.ClusterState(
        kind="real",
        name="mine",
        phase="ready",
        kubeconfig=str(folder / "kubeconfig"),
        api_url="https://127.0.0.1:1",
        service_url="http://127.0.0.1:2",
        ports=ports or {},
        supervisor=state.identify("supervisor", pid),
    )


def component(*argv: str, name: str = "child", within: float = 10) -> Component:
    return Component(name, "control", argv, "http://127.0.0.1:1/", ready_within=1, stop_within=within)


def rest(seconds: float) -> None:
    threading.Event().wait(seconds)


class TestState:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        written = some_state(tmp_path, pid=os.getpid(), ports={"etcd": 4711})
        state.write(tmp_path, written)
        assert state.read(tmp_path) == written

    def test_no_file_half_a_file_and_another_file_are_no_state(self, tmp_path: Path) -> None:
        assert state.read(tmp_path) is None
        for content in ("", "{", '{"kind": "real"}', "[]"):
            (tmp_path / "state.json").write_text(content)
            assert state.read(tmp_path) is None

    def test_a_process_is_alive_until_it_ends_and_its_pid_alone_is_not_enough(self) -> None:
        assert state.alive(state.identify("me", os.getpid()))
        assert not state.alive(state.Running("me", os.getpid(), began=1))
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        running = state.identify("child", child.pid)
        assert state.alive(running)
        child.communicate(b"\n")
        assert not state.alive(running)

    def test_a_zombie_is_not_alive(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        running = state.identify("child", child.pid)
        child.kill()
        eventually(lambda: not state.alive(running), what="the end of a child that nobody has waited for")
        child.communicate()


class TestPorts:
    def test_ports_are_distinct_free_and_not_those_to_avoid(self) -> None:
        chosen = ports.choose([f"port-{number}" for number in range(40)])
        assert len(set(chosen.values())) == 40
        for port in chosen.values():
            with socket.socket() as listener:
                # As servers do, for whom a port that was closed a moment ago is free.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))

    def test_a_port_in_use_is_not_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        free = ports.choose(["free"])["free"]
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            taken = listener.getsockname()[1]
            monkeypatch.setattr(random.SystemRandom, "sample", lambda *_args, **_named: [taken, free])
            assert ports.choose(["one"]) == {"one": free}
            with pytest.raises(ClusterError, match="found only 0 of 1 free ports"):
                ports.choose(["one"], avoid=[free])

    def test_ports_of_living_clusters_are_known_those_of_dead_ones_are_not(self, tmp_path: Path) -> None:
        for name, pid, port in (("alive", os.getpid(), 4711), ("dead", 2**22 + 1, 4712)):
            (tmp_path / name).mkdir()
            state.write(tmp_path / name, some_state(tmp_path, pid=pid, ports={"service": port}))
        with folders.choosing_ports(tmp_path / "new") as taken:
            assert taken == {4711}


class TestCredentials:
    def test_only_the_user_can_read_them_and_the_kubeconfig_is_complete(self, tmp_path: Path) -> None:
        made = credentials.make(tmp_path / "pki")
        kubeconfig = tmp_path / "kubeconfig"
        credentials.write_kubeconfig(kubeconfig, context="escher-mine", server="https://127.0.0.1:1", credentials=made)
        for file in [*(tmp_path / "pki").iterdir(), kubeconfig]:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        config = yaml.safe_load(kubeconfig.read_text())
        assert config["current-context"] == "escher-mine"
        assert config["users"][0]["user"]["token"] == made.token

    def test_everybody_has_a_token_and_a_name_of_his_own(self, tmp_path: Path) -> None:
        made = credentials.make(tmp_path)
        lines = made.token_file.read_text().splitlines()
        assert lines[0] == f'{made.token},admin,admin,"system:masters"'
        assert [line.split(",")[1] for line in lines] == ["admin", *credentials.COMPONENTS]
        assert len({line.split(",")[0] for line in lines}) == len(lines)
        own = credentials.write_component_kubeconfigs(
            tmp_path, context="c", server="https://127.0.0.1:1", credentials=made
        )
        for user, path in own.items():
            assert path == credentials.kubeconfig_of(tmp_path, user)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            config = yaml.safe_load(path.read_text())
            assert config["users"][0]["user"]["token"] == made.tokens[user]

    def test_the_server_certificate_is_accepted_by_a_strict_client(self, tmp_path: Path) -> None:
        made = credentials.make(tmp_path)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(made.server_certificate, made.server_key)
        client = ssl.create_default_context(cafile=str(made.ca_certificate))
        client.verify_flags |= ssl.VERIFY_X509_STRICT
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ours = client.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
        theirs = server.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(3):
            for side in (ours, theirs):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert ours.version() == "TLSv1.3"


class TestChildren:
    def test_a_child_that_ends_is_reported_once_with_its_log(self, tmp_path: Path) -> None:
        mine = children.Children(tmp_path)
        mine.start(component(sys.executable, "-c", "print('no such plugin'); raise SystemExit(3)"))
        assert eventually(mine.ended) == {"child": 3}
        assert mine.ended() == {}
        assert mine.pids == {}
        assert mine.log_end("child") == "no such plugin"
        assert children.describe_exit(3) == "exit code 3"
        assert children.describe_exit(-signal.SIGKILL) == "killed by SIGKILL"

    def test_only_the_end_of_a_long_log_is_shown(self, tmp_path: Path) -> None:
        (tmp_path / "child.log").write_text("".join(f"line {number}\n" for number in range(100_000)))
        assert children.Children(tmp_path).log_end("child", lines=2) == "line 99998\nline 99999"

    def test_one_that_ignores_the_request_to_end_is_killed_even_when_it_is_paused(self, tmp_path: Path) -> None:
        mine = children.Children(tmp_path)
        deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
        pid = mine.start(component(sys.executable, "-c", deaf))
        eventually(lambda: mine.log_end("child") == "deaf")
        running = state.identify("child", pid)
        mine.send("child", signal.SIGSTOP)
        mine.stop({"child": 0.05}, pause=rest)
        assert not state.alive(running)
        assert mine.pids == {}

    def test_they_are_stopped_in_reverse_order_stage_by_stage(self) -> None:
        planned = [
            Component("etcd", "store", (), "", 1, 5),
            Component("kube-apiserver", "api", (), "", 1, 2),
            Component("kwok", "control", (), "", 1, 3),
            Component("service", "service", (), "", 1, 10),
        ]
        assert [list(group) for group in children.in_order(planned)] == [
            ["service"],
            ["kwok"],
            ["kube-apiserver"],
            ["etcd"],
        ]

    @pytest.mark.parametrize(
        ("log", "taken"),
        [
            ("listen tcp 127.0.0.1:1: bind: address already in use", True),
            ("[Errno 98] error while attempting to bind on address", True),
            ("error: no such plugin", False),
        ],
    )
    def test_a_taken_port_is_recognised(self, log: str, taken: bool) -> None:
        assert children.says_port_taken(log) is taken

    @pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
    def test_a_child_ends_when_its_parent_is_killed_outright(self, tmp_path: Path) -> None:
        process = multiprocessing.get_context("spawn").Process(target=start_a_child_and_wait, args=(tmp_path,))
        process.start()
        pid_file = tmp_path / "pid"
        pid = int(eventually(lambda: pid_file.exists() and pid_file.read_text()))
        child = state.identify("child", pid)
        assert state.alive(child)
        process.kill()
        process.join()
        eventually(lambda: not state.alive(child), what="the end of the child")
        process.close()


def start_a_child_and_wait(folder: Path) -> None:
    """Runs in a process of its own, which the test kills."""
    pid = children.Children(folder).start(component(sys.executable, "-c", "import signal; signal.pause()"))
    (folder / "draft").write_text(str(pid))
    (folder / "draft").rename(folder / "pid")
    signal.pause()


class TestFolders:
    def test_a_folder_is_held_by_one_at_a_time(self, tmp_path: Path) -> None:
        with folders.claimed(tmp_path), pytest.raises(ClusterError, match=r"already runs in .*--name"):
            folders.claimed(tmp_path).__enter__()
        with folders.claimed(tmp_path):
            pass

    @pytest.mark.parametrize("content", ["", "contexts: [{name: production}]", "a: [", "[]"])
    def test_a_kubeconfig_of_somebody_else_is_left_alone(self, tmp_path: Path, content: str) -> None:
        foreign = tmp_path / "config"
        foreign.write_text(content)
        with pytest.raises(ClusterError, match="was not written by `escher cluster`"):
            folders.refuse_foreign_kubeconfig(foreign)

    def test_our_own_kubeconfig_may_be_replaced_and_is_removed_unless_changed(self, tmp_path: Path) -> None:
        folder, copy = tmp_path / "cluster", tmp_path / "copy"
        folder.mkdir()
        spec = ClusterSpec(name="mine", folder=str(folder), binaries="/", kubeconfig_copy=str(copy))
        made = credentials.make(folder / "pki")
        for _ in range(2):
            folders.write_kubeconfig(folder / "kubeconfig", spec, server="https://127.0.0.1:1", made=made)
        assert copy.read_bytes() == (folder / "kubeconfig").read_bytes()
        folders.cleared(folder, spec, and_logs=False)
        assert not copy.exists()
        made = credentials.make(folder / "pki")
        folders.write_kubeconfig(folder / "kubeconfig", spec, server="https://127.0.0.1:1", made=made)
        copy.write_text("changed")
        folders.cleared(folder, spec, and_logs=True)
        assert copy.read_text() == "changed"
        assert not folder.exists()

    def test_old_logs_of_unnamed_clusters_are_swept_unless_the_cluster_lives(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        folders.sweep()
        for name in ("owned-1-1", "owned-2-1", "default"):
            places.cluster_folder(name).mkdir(parents=True)
        now = places.cluster_folder("default").stat().st_mtime
        folders.sweep(now=now)
        with folders.claimed(places.cluster_folder("owned-2-1")):
            folders.sweep(now=now + 100_000)
        assert sorted(each.name for each in places.clusters().iterdir()) == ["default", "owned-2-1"]

    @pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a/b", "..", "a" * 64])
    def test_names_that_are_no_dns_labels_are_refused(self, name: str) -> None:
        with pytest.raises(WrongUse, match="is not usable"):
            places.cluster_folder(name)

    def test_folders_follow_the_environment(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
        monkeypatch.setenv("HOME", "/home/somebody")
        assert places.cluster_folder("a") == tmp_path / "escher" / "clusters" / "a"
        assert places.binary_cache() == Path("/home/somebody/.cache/escher/bin")


class TestPlan:
    def planned(self, folder: Path, **wishes: object) -> dict[str, Component]:
        spec = ClusterSpec(name="mine", folder=str(folder), binaries="/bin/dir", **wishes)  # type: ignore[arg-type]
        chosen = {name: 20_000 + number for number, name in enumerate(components.port_names(spec))}
        made = credentials.make(folder / "pki")
        own = {user: credentials.kubeconfig_of(folder / "pki", user) for user in credentials.COMPONENTS}
        planned = components.plan(spec, ports=chosen, credentials=made, kubeconfigs=own)
        return {each.name: each for each in planned}

    @pytest.mark.parametrize("kind", ["real", "embedded"])
    def test_without_sampling_no_scheduler_has_it(self, tmp_path: Path, kind: str) -> None:
        brought = {"scheduler_binaries": {"mine": "/bin/true"}} if kind == "real" else {}
        for sampling in (True, False):
            folder = tmp_path / str(sampling)
            self.planned(folder, kind=kind, sampling=sampling, **brought)
            written = [json.loads(file.read_text()) for file in folder.glob("kube-scheduler*.json")]
            assert len(written) == 2 + len(brought)
            percentages = {each.get("percentageOfNodesToScore") for file in written for each in file["profiles"]}
            assert percentages == ({None, 100} if sampling else {100})

    @pytest.mark.parametrize("kind", ["real", "embedded"])
    def test_where_pods_are_not_marked_one_entry_asks_about_all(self, tmp_path: Path, kind: str) -> None:
        for marks, entries in ((True, 2), (False, 1)):
            folder = tmp_path / str(marks)
            self.planned(folder, kind=kind, marks=marks)
            config = json.loads((folder / f"{components.EXTENDER_SCHEDULER}.json").read_text())
            assert len(config["extenders"]) == entries

    def test_native_gangs_are_on_in_the_api_server_and_in_both_schedulers_so_that_they_compare(
        self, tmp_path: Path
    ) -> None:
        planned = self.planned(tmp_path, native_gangs=True, feature_gates={"Other": False})
        gates = {
            name: [argument for argument in each.argv if argument.startswith("--feature-gates")]
            for name, each in planned.items()
        }
        native = ["--feature-gates=GenericWorkload=true,GangScheduling=true,Other=false"]
        assert gates["kube-apiserver"] == gates["kube-scheduler"] == gates["kube-scheduler-resources"] == native
        assert gates["kube-controller-manager"] == ["--feature-gates=Other=false"]
        assert "--runtime-config=scheduling.k8s.io/v1alpha2=true" in planned["kube-apiserver"].argv

    def test_what_a_minor_has_behind_a_gate_is_switched_on_where_it_is_needed(self, tmp_path: Path) -> None:
        def switches(folder: str, **wishes: object) -> dict[str, list[str]]:
            planned = self.planned(tmp_path / folder, **wishes)
            begins = ("--feature-gates", "--runtime-config")
            found = {name: [each for each in one.argv if each.startswith(begins)] for name, one in planned.items()}
            return {name: each for name, each in found.items() if each}

        assert switches("newest") == {}
        assert switches("older", kubernetes="1.35", marks=False) == {}
        on = ["--feature-gates=MutatingAdmissionPolicy=true"]
        api = ["--runtime-config=admissionregistration.k8s.io/v1beta1=true"]
        assert switches("marked", kubernetes="1.35") == {"kube-apiserver": on + api}

    def test_all_but_api_server_and_schedulers_are_those_of_the_newest_minor(self, tmp_path: Path) -> None:
        planned = self.planned(tmp_path, shared_binaries="/bin/shared")
        programs = {name: each.argv[0] for name, each in planned.items() if name != "service"}
        older = {name for name, program in programs.items() if program.startswith("/bin/dir/")}
        assert older == {"kube-apiserver", "kube-scheduler", "kube-scheduler-resources"}
        assert {program for name, program in programs.items() if name not in older} == {
            f"/bin/shared/{name}" for name in ("etcd", "kube-controller-manager", "kwok")
        }

    def test_each_component_goes_by_a_name_of_its_own(self, tmp_path: Path) -> None:
        planned = self.planned(tmp_path)

        def uses(component: str) -> set[str]:
            return {
                user
                for user in credentials.COMPONENTS
                if any(
                    str(credentials.kubeconfig_of(tmp_path / "pki", user)) in each for each in planned[component].argv
                )
            }

        assert uses("service") == {credentials.SERVICE}
        assert uses("kwok") == {credentials.KUBELETS}
        assert uses("kube-controller-manager") == {credentials.CONTROLLERS}
        config = json.loads((tmp_path / "kube-scheduler.json").read_text())
        own = credentials.kubeconfig_of(tmp_path / "pki", credentials.SCHEDULER)
        assert config["clientConnection"]["kubeconfig"] == str(own)

    def test_an_audit_log_is_written_only_where_it_is_asked_for(self, tmp_path: Path) -> None:
        def told(**wishes: object) -> list[str]:
            name = "embedded-cluster" if wishes.get("kind") == "embedded" else "kube-apiserver"
            return [each for each in self.planned(tmp_path, **wishes)[name].argv if each.startswith("--audit")]

        assert told() == told(kind="embedded") == []
        log = f"--audit-log-path={tmp_path / 'logs' / 'audit.log'}"
        assert told(kind="embedded", audit=True) == [log]
        policy = tmp_path / "audit-policy.json"
        assert {f"--audit-policy-file={policy}", log} <= set(told(audit=True))
        rules = json.loads(policy.read_text())["rules"]
        assert [each["level"] for each in rules[:3]] == ["None", "None", "RequestResponse"]

    def test_nothing_listens_beyond_loopback(self, tmp_path: Path) -> None:
        for each in self.planned(tmp_path).values():
            assert "//127.0.0.1:" in each.ready_url
            assert not [argument for argument in each.argv if "=0.0.0.0" in argument or "=:" in argument]

    def test_a_brought_scheduler_runs_under_its_own_name(self, tmp_path: Path) -> None:
        brought = self.planned(tmp_path, scheduler_binaries={"mine": "/opt/mine"})["kube-scheduler-mine"]
        assert brought.argv[0] == "/opt/mine"

    def test_the_service_gets_the_arguments_that_a_test_wants_besides(self, tmp_path: Path) -> None:
        service = self.planned(tmp_path, service_arguments=("--config", "x.toml"))["service"]
        assert service.argv[-2:] == ("--config", "x.toml")

    def test_leases_of_many_nodes_are_renewed_fifty_a_second_at_most(self) -> None:
        assert components.lease_seconds(10) == 40
        assert 5000 / (components.lease_seconds(5000) / 4) <= 50


class TestNodes:
    def test_plain_nodes_are_ready_with_equal_capacity_and_allocatable(self) -> None:
        [first, *_, last] = nodes.plain(250, nodes.NodeShape(cpu="4", extra={"example.com/x": "2"}))
        assert first["status"]["capacity"] == first["status"]["allocatable"]
        assert first["status"]["capacity"] == {"cpu": "4", "memory": "32Gi", "pods": "110", "example.com/x": "2"}
        assert first["status"]["conditions"][0]["status"] == "True"
        assert last["metadata"]["labels"]["topology.kubernetes.io/zone"] == "zone-2"

    @pytest.mark.parametrize("count", [-1, nodes.MOST_NODES + 1])
    def test_a_senseless_number_is_refused(self, count: int) -> None:
        with pytest.raises(WrongUse, match=f"not {count}"):
            nodes.plain(count, nodes.NodeShape())


class TestBinaries:
    def test_without_go_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        monkeypatch.setattr(Path, "is_file", lambda _path: False)
        with pytest.raises(ClusterError, match=r"no `go` on the PATH; install Go 1\.\d+"):
            binaries.find_go()

    @pytest.mark.parametrize("kubernetes", versions.SUPPORTED, ids=lambda each: each.minor)
    def test_the_version_is_that_of_the_go_module(self, kubernetes: Kubernetes) -> None:
        version = binaries.kubernetes_version(kubernetes)
        assert version.startswith(f"v{kubernetes.minor}.")
        named = re.findall(r"=> k8s\.io/\S+ (v\S+)", (kubernetes.module / "go.mod").read_text())
        # Kubernetes v1.x.y has its parts published as v0.x.y.
        assert set(named) == {version.replace("v1.", "v0.")}
        page = Path(__file__).parents[2] / "docs" / "upgrade.md"
        assert f"{version}: " in page.read_text(), f"docs/upgrade.md does not say that {version} is what is tested"

    @pytest.mark.parametrize("kubernetes", versions.SUPPORTED[1:], ids=lambda each: each.minor)
    def test_the_programs_of_an_older_minor_are_those_of_the_newest(self, kubernetes: Kubernetes) -> None:
        for name in binaries.OF_EACH_MINOR:
            program = Path(name) / "main.go"
            assert (kubernetes.module / program).read_text() == (versions.NEWEST.module / program).read_text()

    def test_which_minor_is_meant_is_said_by_the_caller_else_by_the_environment_else_it_is_the_newest(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(versions.VARIABLE, raising=False)
        assert versions.chosen() is versions.NEWEST
        monkeypatch.setenv(versions.VARIABLE, "1.35")
        assert versions.chosen().minor == "1.35"
        assert versions.chosen("1.36").minor == "1.36"
        assert binaries.kubernetes_version().startswith("v1.35.")
        monkeypatch.setenv(versions.VARIABLE, "1.3")
        with pytest.raises(WrongUse, match=r"^ESCHER_KUBERNETES 1\.3: a control plane can be built of 1\.36, 1\.35"):
            versions.chosen()


class TestDefinitions:
    def test_other_documents_in_the_folder_are_passed_over(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "crds").mkdir()
        (tmp_path / "crds" / "a.yaml").write_text(
            "kind: CustomResourceDefinition\nmetadata: {name: a}\n---\nkind: List\n---\n"
        )
        monkeypatch.setattr(places, "shipped", lambda _folder: tmp_path)
        assert [each["metadata"]["name"] for each in crds.shipped_definitions()] == ["a"]
        (tmp_path / "crds" / "b.yaml").write_text("a: [")
        with pytest.raises(ClusterError, match=r"b\.yaml is not YAML"):
            crds.shipped_definitions()

    def test_are_anybodys_to_change(self) -> None:
        crds.shipped_definitions()[0].clear()
        assert crds.shipped_definitions()[0]["kind"] == "CustomResourceDefinition"
