"""The reference extender (main.go): built once into the user's cache, run for as long as a `with` block.

    with running(built(Progress())) as url:
        httpx.post(f"{url}/scheduler/filter", content=body)

Needs Go. What it does not do, so that a ratio to it is read honestly, stands at the head of main.go.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extender.shipped.errors import ClusterError
from extender.shipped.progress import BuildProgress
from lab.controlplane.go_module import GoModule

SOURCE = Path(__file__).parent
MODULE = GoModule(
    SOURCE, {"reference": "."}, ("-trimpath", "-buildvcs=false", "-ldflags=-s -w"), purpose="the reference extender"
)


def built(progress: BuildProgress) -> Path:
    """The binary, built now if need be. Raises ClusterError with what the compiler said, or that there is no Go."""
    return MODULE.build(progress) / "reference"


@contextmanager
def running(program: Path, *more: str, listen: str = "127.0.0.1:0") -> Iterator[str]:
    """Its URL, while it runs; see `started`."""
    with started(program, *more, listen=listen) as (url, _):
        yield url


@contextmanager
def started(program: Path, *more: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, int]]:
    """Its URL and its process, while it runs; it has ended with the block. `more`: other arguments, such as
    --bind-without-writing.

    Raises ClusterError with what it said if it does not start.
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
