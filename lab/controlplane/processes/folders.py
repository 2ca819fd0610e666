"""The folder of one cluster: its lock, its files, and their removal."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from extender.shipped import places
from extender.shipped.errors import ClusterError
from lab.controlplane.processes import credentials, state
from lab.controlplane.processes.components import ClusterSpec

UNNAMED = "owned-"
"""The prefix of the names of clusters that were started without a name."""

_LOCK = "lock"
_LOGS_KEPT_SECONDS = 24 * 3600


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Locks the folder for this process. Raises ClusterError at once if another process holds it.

    The kernel releases the lock when the process ends, however it ends.
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
    """Yields the ports of other running clusters; no other process chooses meanwhile."""
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
    """Holds the lock file `path`; if another process holds it, calls `on_wait` and waits."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def emptied(folder: Path) -> None:
    """Removes the files of an earlier cluster and creates the folder for logs."""
    for entry in folder.iterdir():
        if entry.name != _LOCK:
            _remove(entry)
    (folder / "logs").mkdir()


def cleared(folder: Path, spec: ClusterSpec, *, and_logs: bool) -> None:
    """Removes the database, keys and kubeconfigs; with `and_logs`, the whole folder."""
    if spec.kubeconfig_copy is not None:
        copy = Path(spec.kubeconfig_copy)
        with contextlib.suppress(OSError):
            # Another kubeconfig may have been written there since.
            if copy.read_bytes() == (folder / "kubeconfig").read_bytes():
                copy.unlink()
    if and_logs:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for entry in folder.iterdir():
        if entry.name not in (_LOCK, "logs"):
            _remove(entry)


def write_kubeconfig(path: Path, spec: ClusterSpec, *, server: str, made: credentials.Credentials) -> None:
    """Writes the kubeconfig to `path` and, if the user asked for one, writes a copy."""
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
    """Raises ClusterError if `path` has anything but a kubeconfig that this tool wrote."""
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
    """Removes the folder of a cluster that has ended."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(*, now: float | None = None) -> None:
    """Removes folders of unnamed clusters that failed more than a day ago (kept for their logs)."""
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
