"""The folder of one cluster: who holds it, what is put there, what is taken away again."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from extender.shipped import places
from extender.shipped.errors import ClusterError
from lab.controlplane import credentials, state
from lab.controlplane.components import ClusterSpec

UNNAMED = "owned-"
"""Begins the name of every cluster that nobody cared to name."""

_LOCK = "lock"
_LOGS_KEPT_SECONDS = 24 * 3600


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder is this process's alone. Raises ClusterError at once if another one holds it.

    The kernel gives it up when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(
                f"a cluster already runs in {folder}; stop it with `escher cluster down{places.named(folder.name)}`, "
                "or choose another --name to run a second one"
            ) from error
        yield


@contextlib.contextmanager
def choosing_ports(folder: Path) -> Iterator[set[int]]:
    """The ports of every other living cluster in the same place; nobody else there chooses meanwhile."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(folder.parent / ".ports.lock"):
        others = (state.read(each) for each in folder.parent.iterdir() if each != folder and each.is_dir())
        yield {
            port
            for other in others
            if other is not None and state.alive(other.supervisor)
            for port in other.ports.values()
        }


@contextlib.contextmanager
def exclusive(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock file `path`; calls `on_wait` first if another process holds it, then waits for that one."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def emptied(folder: Path) -> None:
    """Nothing of an earlier cluster is left, and there is a place for logs."""
    for entry in folder.iterdir():
        if entry.name != _LOCK:
            _remove(entry)
    (folder / "logs").mkdir()


def cleared(folder: Path, spec: ClusterSpec, *, and_logs: bool) -> None:
    """The database, the keys and the kubeconfigs are gone; `and_logs`: the whole folder is."""
    if spec.kubeconfig_copy is not None:
        copy = Path(spec.kubeconfig_copy)
        with contextlib.suppress(OSError):
            # Somebody may have put another one there since.
            if copy.read_bytes() == (folder / "kubeconfig").read_bytes():
                copy.unlink()
    if and_logs:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for entry in folder.iterdir():
        if entry.name not in (_LOCK, "logs"):
            _remove(entry)


def write_kubeconfig(path: Path, spec: ClusterSpec, *, server: str, made: credentials.Credentials) -> None:
    """The kubeconfig is at `path`, and where the user wants it besides."""
    context = f"escher-{spec.name}"
    credentials.write_kubeconfig(path, context=context, server=server, credentials=made)
    if spec.kubeconfig_copy is not None:
        copy = Path(spec.kubeconfig_copy)
        refuse_foreign_kubeconfig(copy)
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            credentials.write_kubeconfig(copy, context=context, server=server, credentials=made)
        except OSError as error:
            raise ClusterError(f"cannot write the kubeconfig to {copy}: {error.strerror}") from error


def refuse_foreign_kubeconfig(path: Path) -> None:
    """Raises ClusterError if `path` holds anything but a kubeconfig that this tool wrote earlier."""
    if not path.exists():
        return
    import yaml

    try:
        present = yaml.safe_load(path.read_text())
        contexts = [each["name"] for each in present["contexts"]]
    except (OSError, ValueError, TypeError, KeyError, yaml.YAMLError):
        contexts = [""]
    if not all(name.startswith("escher-") for name in contexts):
        raise ClusterError(f"{path} exists and was not written by `escher cluster`; it is left alone")


def remove(folder: Path) -> None:
    """The folder of a cluster that has ended is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(*, now: float | None = None) -> None:
    """Folders of unnamed clusters that failed more than a day ago, kept for their logs, are gone."""
    root = places.clusters()
    if not root.is_dir():
        return
    for folder in root.glob(f"{UNNAMED}*"):
        with contextlib.suppress(ClusterError, OSError):
            if (time.time() if now is None else now) - folder.stat().st_mtime > _LOGS_KEPT_SECONDS:
                with claimed(folder):
                    remove(folder)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)
