"""`python -m kubesim`: runs the embedded cluster on a port of 127.0.0.1 until a signal ends it.

`escher cluster up` and tests start it. Its flags are named as those of kube-apiserver where such flags exist. It reads
the machine's clock once, for the epoch of the cluster's `Clock`.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvicorn
import uvloop

from kubesim.apiserver.serving.api import ADMIN
from kubesim.apiserver.serving.server import application
from kubesim.clock import Clock
from kubesim.embedded import Cluster
from kubesim.kinds import Json


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kubesim", description="The embedded cluster, by itself.")
    parser.add_argument("--port", type=int, required=True, help="port of 127.0.0.1 that the API server listens on")
    parser.add_argument("--tls-cert-file", required=True, help="its certificate (PEM)")
    parser.add_argument("--tls-private-key-file", required=True, help="and key (PEM)")
    parser.add_argument(
        "--token-auth-file", type=Path, required=True, help="whose first field lets in, and the second who it is"
    )
    parser.add_argument(
        "--scheduler-config", type=Path, action="append", default=[], help="a KubeSchedulerConfiguration; repeatable"
    )
    parser.add_argument("--audit-log-path", type=Path, help="who changed what, a JSON object a line")
    parser.add_argument(
        "--pod-annotations", default="kubesim", metavar="DOMAIN", help="of run-seconds, stop-seconds and stop-exit-code"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws names, UIDs and ties")
    given = parser.parse_args()
    # Imported modules stay in memory, so the garbage collector need not examine them.
    gc.freeze()
    uvloop.run(serve(given))


async def serve(given: argparse.Namespace) -> None:
    """Serves until SIGINT or SIGTERM, which uvicorn handles. Raises the error of a failed part."""
    users = {line[0]: line[1] for line in csv.reader(given.token_auth_file.read_text().splitlines())}
    cluster = Cluster(
        Clock(time.time()),
        seed=given.seed,
        scheduler_configs=[json.loads(file.read_text()) for file in given.scheduler_config],
        token=next(token for token, user in users.items() if user == ADMIN),
        tokens=users,
        pod_annotations=given.pod_annotations,
    )
    if given.audit_log_path is not None:
        cluster.api.audit.subscribe(_written_to(given.audit_log_path))
    server = uvicorn.Server(
        uvicorn.Config(
            application(cluster.api),
            host="127.0.0.1",
            port=given.port,
            loop="none",
            http="httptools",
            ws="none",
            access_log=False,
            log_level="warning",
            # kube-apiserver closes idle connections after 90 s.
            timeout_keep_alive=90,
            timeout_graceful_shutdown=1,
            backlog=2048,
            ssl_certfile=given.tls_cert_file,
            ssl_keyfile=given.tls_private_key_file,
        )
    )
    running = asyncio.create_task(cluster.run())
    serving = asyncio.create_task(server.serve())
    await asyncio.wait({running, serving}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    running.cancel()
    [outcome] = await asyncio.gather(running, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


def _written_to(log: Path) -> Callable[[Json], None]:
    """Returns a function that appends an event to the log, unbuffered."""
    file = log.open("ab", buffering=0)

    def write(event: Json) -> None:
        file.write(msgspec.json.encode(event) + b"\n")

    return write


if __name__ == "__main__":
    main()
