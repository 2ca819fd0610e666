"""An application with a gang without an extender, to be killed: python -m tests.e2e.ghost_application KUBECONFIG WHEN

It says what it has come to, a line each: `starting`, `reserved`, `launched`. At WHEN, unless that is `starting`, it
goes no further.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs
from extender.esl import Approach, GangSpec, gang
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from tests.e2e.outside import PODS

SIZE = 3
ASK = gang("train", SIZE, {"cpu": "1"}, scheduler="default-scheduler")


def members(spec: GangSpec, seconds: str) -> list[dict[str, object]]:
    """They are let in by the Pod Security Standard `restricted`, and run for so long."""
    return [spec.requirement(n, Approach.EXTENDED_RESOURCES).attach(_plain(spec, n, seconds)) for n in range(spec.size)]


def _plain(spec: GangSpec, number: int, seconds: str) -> dict[str, object]:
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "metadata": {
            "name": f"{spec.gang.name}-{number}-{spec.run}",
            "annotations": {"escher.dev/run-seconds": seconds},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "initContainers": [{"name": "first", "image": "none", "securityContext": restricted}],
            "containers": [
                {"name": name, "image": "none", "securityContext": restricted} for name in ("main", "beside")
            ],
        },
    }


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def main(kubeconfig: Path, when: str) -> None:
    async def come_to(what: str) -> None:
        say(what)
        if what == when:
            await asyncio.Event().wait()

    async def launch(spec: GangSpec) -> None:
        await come_to("reserved")
        for member in members(spec, "8"):
            await connection.request("POST", PODS, msgspec.json.encode(member))
        await come_to("launched")

    async with (
        Connection(await Credentials.load(from_kubeconfig(kubeconfig))) as connection,
        ExtendedResourceGangs(connection) as gangs,
    ):
        running = asyncio.create_task(gangs.run(ASK, launch))
        await asyncio.sleep(0)
        # Its ghosts are being made.
        say("starting")
        await running


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
