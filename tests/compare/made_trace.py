"""A trace that nobody has recorded: some machines, and pods that came to them."""

from __future__ import annotations

from pathlib import Path

NODE_COLUMNS = "sn,cpu_milli,memory_mib,gpu,model"
POD_COLUMNS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)


def node(name: str, *, cpu: int = 32, gpus: int = 0) -> str:
    return f"{name},{cpu}000,131072,{gpus},{'T4' if gpus else ''}"


def pod(
    name: str,
    created: int,
    *,
    ended: int | None = None,
    cpu: int = 4,
    gpus: int = 0,
    share: int = 1000,
    model: str = "",
    placed: bool = True,
) -> str:
    deleted = created + 100 if ended is None else ended
    scheduled = created if placed else ""
    return f"{name},{cpu}000,1024,{gpus},{share if gpus else 0},{model},LS,Running,{created},{deleted},{scheduled}"


def busy(pods: int = 90) -> list[str]:
    """Every ten seconds a pod alone, then two of an equal shape, one with a share of a GPU among the first."""
    found = []
    for number in range(pods):
        turn, at = divmod(number, 3)
        created = turn * 100 + at
        if at:
            found.append(pod(f"p{number}", created, ended=created + 250, cpu=2))
        else:
            found.append(pod(f"p{number}", created, cpu=1 + turn % 5, gpus=1, share=500))
    return found


def written(folder: Path, nodes: list[str], pods: list[str]) -> str:
    (folder / "openb_node_list_made.csv").write_text("\n".join([NODE_COLUMNS, *nodes]) + "\n")
    (folder / "openb_pod_list_made.csv").write_text("\n".join([POD_COLUMNS, *pods]) + "\n")
    return str(folder)
