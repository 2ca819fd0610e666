"""The control plane's binaries, built once from Go modules into the user's cache (`go_module`).

Each minor version of Kubernetes (`versions`) has a module for kube-apiserver and kube-scheduler, which the service
talks to. All other binaries come from the newest minor's module, because each further build takes minutes.
"""

from __future__ import annotations

import re
from pathlib import Path

from extender.shipped import versions
from extender.shipped.errors import ClusterError
from extender.shipped.progress import BuildProgress
from extender.shipped.versions import Kubernetes
from lab.controlplane.processes.go_module import GoModule

OF_EACH_MINOR = ("kube-apiserver", "kube-scheduler")
NAMES = ("etcd", *OF_EACH_MINOR, "kube-controller-manager", "kwok")

_VERSION = "k8s.io/component-base/version"


def build(progress: BuildProgress, kubernetes: Kubernetes | None = None) -> Path:
    """Builds the binaries `OF_EACH_MINOR` unless they are cached; returns their folder.

    The default version is `versions.chosen`. Raises ClusterError with the compiler's output. Several processes may call
    this at once: one builds, the others wait for it.
    """
    return _module(kubernetes or versions.chosen()).build(progress)


def build_shared(progress: BuildProgress) -> Path:
    """Builds all binaries of the newest minor, as `build` does, and returns their folder."""
    return _module(versions.NEWEST).build(progress)


def find_go() -> str:
    """The path of the Go tool. Raises ClusterError with what to install if there is none."""
    return _module(versions.NEWEST).find_go()


def kubernetes_version(kubernetes: Kubernetes | None = None) -> str:
    """The version in go.mod, such as `v1.36.3`. The default minor is `versions.chosen`."""
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
    # Kubernetes' own build stamps the version by the linker; without the stamp `kubectl version` shows v0.0.0.
    version = kubernetes_version(kubernetes)
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", f"-ldflags={linker}"]
