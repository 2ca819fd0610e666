"""The trace reader takes the published format and names the line of what it cannot take."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.controlplane import nodes, trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,32000,262144,0,\nopenb-node-0231,96000,786432,8,V100M32\n"
POD_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)


def written(folder: Path, text: str) -> Path:
    file = folder / "trace.csv"
    file.write_text(text)
    return file


def test_nodes_are_read_in_order_with_gpus_and_model(tmp_path: Path) -> None:
    assert trace.read_nodes(written(tmp_path, NODES)) == [
        trace.TraceNode("openb-node-0000", 32_000, 262_144, 0, ""),
        trace.TraceNode("openb-node-0231", 96_000, 786_432, 8, "V100M32"),
    ]


def test_at_most_limit_nodes_are_read(tmp_path: Path) -> None:
    assert [node.name for node in trace.read_nodes(written(tmp_path, NODES), limit=1)] == ["openb-node-0000"]


def test_those_are_from_everywhere_in_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, NODES.splitlines()[0] + "\n" + "".join(f"n{number},1,1,0,\n" for number in range(10)))
    assert [node.name for node in trace.read_nodes(file, limit=4)] == ["n0", "n2", "n5", "n7"]
    assert len(trace.read_nodes(file, limit=10)) == len(trace.read_nodes(file, limit=99)) == 10


def test_pods_are_read_with_models_that_they_can_use(tmp_path: Path) -> None:
    line = "openb-pod-0017,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,427061.0\n"
    assert trace.read_pods(written(tmp_path, POD_HEADER + line)) == [
        trace.TracePod(
            name="openb-pod-0017",
            cpu_milli=6_000,
            memory_mib=12_288,
            gpus=1,
            gpu_milli=460,
            gpu_models=("V100M16", "V100M32"),
            qos="LS",
            phase="Running",
            created=427_061,
            deleted=12_902_960,
            scheduled=427_061,
        )
    ]


def test_a_pod_that_was_never_placed_has_no_such_time(tmp_path: Path) -> None:
    [pod] = trace.read_pods(written(tmp_path, POD_HEADER + "p,1,1,0,0,,BE,Pending,5,,\n"))
    assert (pod.scheduled, pod.deleted, pod.gpu_models) == (None, None, ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sn,cpu_milli,memory_mib,gpu\n", "column model is missing"),
        ("", "column sn is missing"),
        (
            "sn,cpu_milli,memory_mib,gpu,model\nn,32,1,none,\n",
            "line 2: gpu should be a whole number >= 0, found 'none'",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,-1,1,0,\n", "line 2: cpu_milli should be a whole number"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,1.5,1,0,\n", "line 2: cpu_milli should be a whole number"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1\n", "line 2: expected 5 fields"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,A,B\n", "line 2: expected 5 fields"),
        ("sn,cpu_milli,memory_mib,gpu,model\n,1,1,0,A\n", "line 2: sn is empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(trace.TraceError, match=complaint):
        trace.read_nodes(written(tmp_path, text))


def test_a_missing_file_and_a_binary_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(trace.TraceError, match=r"cannot read the trace .*No such file"):
        trace.read_nodes(tmp_path / "absent.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00sn,cpu")
    with pytest.raises(trace.TraceError, match=r"is not a CSV file|column sn is missing"):
        trace.read_nodes(binary)


def test_trace_nodes_become_node_objects_with_gpus_as_extended_resource(tmp_path: Path) -> None:
    plain, with_gpus = nodes.from_trace(trace.read_nodes(written(tmp_path, NODES)))
    assert plain["status"]["capacity"] == {"cpu": "32000m", "memory": "262144Mi", "pods": "110"}
    assert with_gpus["status"]["allocatable"][nodes.GPU] == "8"
    assert with_gpus["metadata"]["labels"][nodes.GPU_MODEL_LABEL] == "V100M32"
    assert nodes.GPU_MODEL_LABEL not in plain["metadata"]["labels"]
