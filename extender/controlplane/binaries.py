"""The control plane's binaries, built once from the Go module in `go/` and kept in the user's cache.

The folder's name is a digest of everything the result depends on, so an old build is never taken for a new one, and
a folder that exists under its final name is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extender.controlplane import folders, places
from extender.controlplane.errors import ClusterError
from extender.controlplane.progress import BuildProgress

NAMES = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")

_VERSION = "k8s.io/component-base/version"


def build(progress: BuildProgress) -> Path:
    """The folder with all binaries of `NAMES`, built now if need be. Raises ClusterError with what the compiler said.

    Safe to call from several processes at once: one builds, the others wait for it.
    """
    go = find_go()
    folder = places.binary_cache() / _digest(_run([go, "version"]))
    if _complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_builder(folder, progress):
        if not _complete(folder):
            _build_into(folder, go, progress)
    return folder


def _complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in NAMES)


def _build_into(folder: Path, go: str, progress: BuildProgress) -> None:
    # Beside the final place, so that the last step is one rename.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
        for number, name in enumerate(NAMES, start=1):
            progress.begins(name, number, len(NAMES))
            began = time.monotonic()
            _run([go, "build", *_flags(), "-o", str(Path(scratch) / name), f"./{name}"], building=name)
            progress.ends(name, time.monotonic() - began)
        if folder.exists():
            shutil.rmtree(folder)
        draft = Path(scratch) / "complete"
        draft.mkdir()
        for name in NAMES:
            (Path(scratch) / name).rename(draft / name)
        draft.rename(folder)


def _flags() -> list[str]:
    # The version is stamped by the linker in Kubernetes' own build; without it `kubectl version` shows v0.0.0.
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    linker = " ".join(["-s", "-w", *(f"-X {_VERSION}.{name}={value}" for name, value in stamps.items())])
    return ["-trimpath", "-buildvcs=false", f"-ldflags={linker}"]


def kubernetes_version() -> str:
    """The version that go.mod names, as `v1.36.3`."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (places.GO_MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{places.GO_MODULE / 'go.mod'} does not name a version of k8s.io/kubernetes")
    return found[1]


def _digest(go_version: str) -> str:
    digest = hashlib.sha256(go_version.encode() + " ".join(_flags()).encode())
    sources = (p for p in places.GO_MODULE.rglob("*") if p.suffix in (".go", ".mod", ".sum"))
    for source in sorted(sources):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(places.GO_MODULE).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def find_go() -> str:
    """The Go tool. Raises ClusterError saying what to install if there is none."""
    found = shutil.which("go")
    # Where the official archive puts it; a shell without its profile does not know that.
    usual = Path("/usr/local/go/bin/go")
    if found is None and usual.is_file():
        found = str(usual)
    if found is None:
        minimum = re.search(r"^go (\S+)", (places.GO_MODULE / "go.mod").read_text(), re.MULTILINE)
        raise ClusterError(
            "the real control plane is built from source, and there is no `go` on the PATH; "
            f"install Go {minimum[1] if minimum else ''} or newer (https://go.dev/doc/install) and try again"
        )
    return found


def _run(command: list[str], *, building: str | None = None) -> str:
    # No cgo: the result must not depend on which C compiler is here. GOFLAGS and GOWORK of the user are for his work.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    ended = subprocess.run(command, cwd=places.GO_MODULE, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = "\n".join((ended.stderr or ended.stdout).splitlines()[-20:])
        raise ClusterError(f"could not build {building or command[0]}; the Go tool said:\n{said}")
    return ended.stdout


@contextmanager
def _one_builder(folder: Path, progress: BuildProgress) -> Iterator[None]:
    lock = folder.with_name(f".{folder.name}.lock")
    with folders.exclusive(lock, on_wait=progress.waiting):
        yield
