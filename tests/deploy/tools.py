"""helm and kubeconform, built once from the Go module in `go/` and kept in the cache, as the control plane is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from extender.shipped.progress import BuildProgress, Progress
from lab.controlplane.processes.go_module import GoModule

_MODULE = GoModule(
    Path(__file__).parent / "go",
    {"helm": "helm.sh/helm/v4/cmd/helm", "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
    ["-trimpath", "-buildvcs=false", "-ldflags=-s -w"],
    purpose="what looks at the manifests",
)


def build(progress: BuildProgress) -> Path:
    """The folder with both. Raises ClusterError with what the compiler said."""
    return _MODULE.build(progress)


@cache
def tool(name: str) -> str:
    """The program of that name, built now if need be."""
    return str(build(Progress()) / name)
