"""The control plane's binaries, built once from Go modules and kept in the user's cache (`go_module`).

Each minor of Kubernetes (`versions`) has a module, for what the service has to do with: kube-apiserver and
kube-scheduler. What else there is comes from the module of the newest, whichever runs: to build one more takes minutes.
"""

from __future__ import annotations

import re
from pathlib import Path

from extender.shipped import versions
from extender.shipped.errors import ClusterError
from extender.shipped.progress import BuildProgress
from extender.shipped.versions import Kubernetes
from lab.controlplane.go_module import GoModule

OF_EACH_MINOR = ("kube-apiserver", "kube-scheduler")
NAMES = ("etcd", *OF_EACH_MINOR, "kube-controller-manager", "kwok")

_VERSION = "k8s.io/component-base/version"


def build(progress: BuildProgress, kubernetes: Kubernetes | None = None) -> Path:
    """The folder with all binaries of `OF_EACH_MINOR`, built now if need be: of the minor that `versions.chosen` means
    unless told otherwise. Raises ClusterError with what the compiler said.

    Safe to call from several processes at once: one builds, the others wait for it.
    """
    return _module(kubernetes or versions.chosen()).build(progress)


def build_shared(progress: BuildProgress) -> Path:
    """The folder with all the others, built as by `build`."""
    return _module(versions.NEWEST).build(progress)


def find_go() -> str:
    """The Go tool. Raises ClusterError saying what to install if there is none."""
    return _module(versions.NEWEST).find_go()


def kubernetes_version(kubernetes: Kubernetes | None = None) -> str:
    """The version that go.mod names, as `v1.36.3`: of the minor that `versions.chosen` means unless told otherwise."""
    file = (kubernetes or versions.chosen()).module / "go.mod"
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", file.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{file} does not name a version of k8s.io/kubernetes")
    return found[1]


def _module(kubernetes: Kubernetes) -> GoModule:
    names = NAMES if kubernetes is versions.NEWEST else OF_EACH_MINOR
    packages = {name: f"./{name}" for name in names}
    return GoModule(kubernetes.module, packages, _flags(kubernetes), purpose="the real control plane")


def _flags(kubernetes: Kubernetes) -> list[str]:
    # The version is stamped by the linker in Kubernetes' own build; without it `kubectl version` shows v0.0.0.
    version = kubernetes_version(kubernetes)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", f"-ldflags={linker}"]
