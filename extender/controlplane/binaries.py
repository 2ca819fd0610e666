"""The control plane's binaries, built once from the Go module in `go/` and kept in the user's cache (`go_module`)."""

from __future__ import annotations

import re
from pathlib import Path

from extender.controlplane import places
from extender.controlplane.errors import ClusterError
from extender.controlplane.go_module import GoModule
from extender.controlplane.progress import BuildProgress

NAMES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")

_VERSION = "k8s.io/component-base/version"


def build(progress: BuildProgress) -> Path:
    """The folder with all binaries of `NAMES`, built now if need be. Raises ClusterError with what the compiler said.

    Safe to call from several processes at once: one builds, the others wait for it.
    """
    return _module().build(progress)


def find_go() -> str:
    """The Go tool. Raises ClusterError saying what to install if there is none."""
    return _module().find_go()


def kubernetes_version() -> str:
    """The version that go.mod names, as `v1.36.3`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (places.GO_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{places.GO_MODULE / 'go.mod'} does not name a version of k8s.io/kubernetes")
    return found[1]


def _module() -> GoModule:
    packages = {name: f"./{name}" for name in NAMES}
    return GoModule(places.GO_MODULE, packages, _flags(), purpose="the real control plane")


def _flags() -> list[str]:
    # The version is stamped by the linker in Kubernetes' own build; without it `kubectl version` shows v0.0.0.
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", f"-ldflags={linker}"]
