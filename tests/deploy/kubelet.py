"""A stand-in for kubelets: the container of a pod as a process on this machine, with what a kubelet would give it.

Command, arguments, environment and files are those of the manifest. What depends on the place is put in its stead:
mounted folders are below a folder of the test's, what listens does so on loopback, and the token of the service
account, made by a TokenRequest, stands in a kubeconfig, for only pods have one in /var/run.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from extender.shipped.progress import Progress
from lab.controlplane.clusters import RealCluster
from lab.controlplane.processes import binaries, components
from tests.controlplane.deadline import eventually
from tests.deploy.manifests import Object
from tests.kube.kubeconfigs import kubeconfig


class Container:
    """The only container of a pod. `instead`: what is written in place of what, in arguments and files. `pod`: its
    name; `address`: its address as it is told, where nobody listens."""

    def __init__(
        self,
        cluster: RealCluster,
        namespace: str,
        template: Object,
        folder: Path,
        instead: Mapping[str, str],
        *,
        pod: str = "pod-1",
        address: str = "192.0.2.1",
    ) -> None:
        self.pod = pod
        self._cluster = cluster
        self._namespace = namespace
        self._address = address
        self._spec = template["spec"]
        [self._container] = self._spec["containers"]
        self._folder = folder
        folder.mkdir(parents=True)
        self._instead = dict(instead)
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes]
        self._more: tuple[str, ...] = ()
        for mount in self._container.get("volumeMounts", ()):
            place = self._place(mount["mountPath"])
            self._instead[mount["mountPath"]] = str(place)
        self.kubeconfig = self._let_in()
        self._instead['kubeconfig: ""'] = f'kubeconfig: "{self.kubeconfig}"'
        self.mount()

    def _place(self, path: str) -> Path:
        return self._folder / path.strip("/").replace("/", "-")

    def _rewritten(self, text: str) -> str:
        # In one go: what has been written is not looked at again.
        longest_first = sorted(self._instead, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        return re.sub(pattern, lambda found: self._instead[found[0]], text)

    def _let_in(self) -> Path:
        """As the service account: with its rights and no other."""
        account = self._spec["serviceAccountName"]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        token = self._cluster.admin.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        authority = self._cluster.kubeconfig_of("kube-scheduler").parent / "ca.crt"
        cluster = {"server": self._cluster.api_url, "certificate-authority": str(authority)}
        return kubeconfig(self._folder, {"token": token}, **cluster)

    def mount(self) -> None:
        """What is mounted is as ConfigMaps and Secrets say now."""
        volumes = {each["name"]: each for each in self._spec["volumes"]}
        for mount in self._container.get("volumeMounts", ()):
            place = self._place(mount["mountPath"])
            place.mkdir(exist_ok=True)
            for name, content in self._files(volumes[mount["name"]]).items():
                (place / f".{name}").write_bytes(content)
                (place / f".{name}").replace(place / name)

    def _files(self, volume: Object) -> dict[str, bytes]:
        root = f"/api/v1/namespaces/{self._namespace}"
        if "configMap" in volume:
            data = self._cluster.admin.get(f"{root}/configmaps/{volume['configMap']['name']}")["data"]
            return {name: self._rewritten(text).encode() for name, text in data.items()}
        if "secret" in volume:
            data = self._cluster.admin.get(f"{root}/secrets/{volume['secret']['secretName']}")["data"]
            return {name: base64.b64decode(text) for name, text in data.items()}
        return {}

    def _environment(self) -> dict[str, str]:
        fields = {"metadata.name": self.pod, "metadata.namespace": self._namespace, "status.podIP": self._address}
        said = {
            each["name"]: fields[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in self._container.get("env", ())
        }
        return {**os.environ, **components.import_path(), **said}

    def command(self, *more: str) -> list[str]:
        """Of the manifest; where it names no command, that of the image."""
        match self._container.get("command"):
            case ["kube-scheduler"]:
                program = [str(binaries.build(Progress()) / "kube-scheduler")]
            case None:
                program = [sys.executable, "-m", "extender"]
            case other:
                raise ValueError(f"nobody knows {other}")
        return [*program, *map(self._rewritten, self._container.get("args", ())), *more]

    def run(self, *more: str) -> None:
        """It has run to its end, and well."""
        ended = subprocess.run(
            self.command(*more), env=self._environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr

    @contextlib.contextmanager
    def running(self, port: int, *more: str) -> Iterator[None]:
        """It runs, and is ready by its probes; asked to end as a kubelet does, it ends in time."""
        self._start(more)
        try:
            self._until_ready(port)
            yield
        except BaseException as error:
            error.add_note(self.log()[-6000:])
            raise
        finally:
            self._process.terminate()
            self._process.wait(self._spec.get("terminationGracePeriodSeconds", 30))

    def _start(self, more: tuple[str, ...]) -> None:
        self._more = more
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self.command(*more), env=self._environment(), stdout=out, stderr=out)

    def _until_ready(self, port: int) -> None:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = self._container[probe]["httpGet"]["path"]
            what = f"{probe} of {self._container['name']}"
            eventually(partial(answers, port, path), within=60, what=what)

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """By SIGKILL, and it is over."""
        self._process.kill()
        self._process.wait(10)

    def come_back(self, port: int) -> None:
        """As a kubelet does it with what has ended: it runs again, and is ready."""
        self._start(self._more)
        self._until_ready(port)

    def log(self) -> str:
        return self._log.read_text(errors="replace")


def answers(port: int, path: str) -> bool:
    """Whether a kubelet is content: it shows no certificate, and looks at none."""
    context = ssl._create_unverified_context()
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=context, timeout=5) as answer,
    ):
        return bool(answer.status == 200)
    return False
