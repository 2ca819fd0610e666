"""The reference extender (main.go): built once into the user's cache, run in a `with` block.

    with running(built(Progress())) as url:
        httpx.post(f"{url}/scheduler/filter", content=body)

Needs Go. The comment at the top of main.go says what it does not do: read ratios to it with that in mind.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extender.shipped.errors import ClusterError
from extender.shipped.progress import BuildProgress
from lab.controlplane.processes.go_module import GoModule

SOURCE = Path(__file__).parent
MODULE = GoModule(
    SOURCE, {"reference": "."}, ("-trimpath", "-buildvcs=false", "-ldflags=-s -w"), purpose="the reference extender"
)


def built(progress: BuildProgress) -> Path:
    """Returns the binary, built if needed. Raises ClusterError without Go, or on a failed build."""
    return MODULE.build(progress) / "reference"


@contextmanager
def running(program: Path, *more: str, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """Yields its URL while it runs; see `started`."""
    with started(program, *more, listen=listen) as (url, _):
        yield url


@contextmanager
def started(program: Path, *more: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, int]]:
    """Yields its URL and process; ends it after the block. `more`: such as --bind-without-writing.

    Raises ClusterError with its output if it does not start.
    """
    command = [str(program), "--listen", listen, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise ClusterError(f"the reference extender does not start: {process.stderr.read().strip()}")
            yield url, process.pid
        finally:
            process.terminate()
