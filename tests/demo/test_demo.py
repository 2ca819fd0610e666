"""`escher demo` from start to finish, and what it says when it is asked for something else."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from extender.cli.main import app
from kubesim.heeding import unheeded
from lab.compare.trials.pods import manifest
from lab.compare.trials.workloads import Ask

SCENES = [
    *("late-resource", "contention-plain", "contention-extender", "contention-ghosts"),
    *("policy-apart", "policy-near-data", "measured", "never-fits"),
]
TRACE = "sn,cpu_milli,memory_mib,gpu,model\n"


def refused(*options: str) -> tuple[int, str]:
    """The exit code of `escher demo` with these options, and its words without the frame around them."""
    ended = CliRunner().invoke(app, ["demo", *options])
    assert ended.stdout == ""
    return ended.exit_code, " ".join(re.sub("[│╭╮╰╯─]", " ", ended.stderr).split())


def performed(*arguments: str, seconds: float = 100) -> tuple[dict[str, Any], str]:
    """The result, in which all came out as promised, and the story."""
    ended = subprocess.run(
        [sys.executable, "-m", "extender", "demo", "--json", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=seconds,
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert result["passed"]
    assert [scene["name"] for scene in result["scenes"]] == SCENES
    assert [scene["name"] for scene in result["scenes"] if not scene["passed"]] == []
    partial = {row["approach"]: row["partial_gangs"] for row in result["approaches"]}
    # Plain pods show what gangs are for: both jobs of the contention are stuck half-way.
    assert partial == {"plain": 2, "extender": 0, "ghosts": 0}
    assert all(row["writes_per_gang"] > 0 and row["median_ms"] > 0 for row in result["approaches"])
    assert "members" in result["scenes"][-1]["explanation"]
    assert [(row["policy"], row["type"], row["breaches"]) for row in result["policies"]] == [
        ("apart", "anti-affinity", 0),
        ("near-data", "data-locality", 0),
    ]
    assert all(row["placed_after_ms"] > 0 for row in result["policies"])
    return result, ended.stderr


def test_the_demo_comes_out_as_promised_on_the_embedded_cluster() -> None:
    result, story = performed("--nodes", "8", "--rounds", "1", "--seed", "7")
    assert (result["cluster"], result["nodes"], result["places"], result["seed"]) == ("embedded", 8, 16, 7)
    # No terminal: the same story in plain lines.
    assert all(character.isprintable() or character == "\n" for character in story)
    assert "\n\n\n" not in story
    assert "Why does this one wait?" in story
    told = " ".join(story.split())
    assert "8 of 8 nodes have one of its pods" in told
    assert re.search(r"→ end pod default/web-\d on node-0", told)
    assert "near-data (data-locality: data2 is on no node)" in told
    assert "│ apart (anti-affinity) │ 9 pods │ never │" in told
    assert story.rstrip().splitlines()[-1].startswith("All as promised")


@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_the_demo_comes_out_as_promised_on_a_real_control_plane() -> None:
    result, _ = performed("--real", "--nodes", "8", "--rounds", "2", seconds=1100)
    assert result["cluster"] == "real"


@pytest.mark.e2e
def test_the_demo_comes_out_as_promised_on_nodes_of_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "nodes.csv"
    lines = [f"machine-{number},{(32000, 96000, 8000)[number % 3]},262144,0,\n" for number in range(30)]
    trace.write_text(TRACE + "".join(lines))
    result, story = performed("--node-trace", str(trace), "--nodes", "24", "--rounds", "1")
    assert (result["nodes"], result["node_trace"]) == (24, "nodes.csv")
    assert "24 nodes of 8 to 96 CPUs" in story


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nodes", "3"), ("--nodes should be between 4 and 5000, found 3",)),
        (("--nodes", "many"), ("Invalid value for '--nodes'",)),
        (("--rounds", "0"), ("--rounds should be between 1 and 100, found 0",)),
        (("--node-trace", "absent.csv"), ("absent.csv", "No such file")),
    ],
)
def test_a_wrong_option_is_named_with_its_value_before_anything_starts(
    options: tuple[str, ...], said: tuple[str, ...]
) -> None:
    code, words = refused(*options)
    assert code == 2
    assert [each for each in said if each not in words] == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("a,8000,1024,0,\n" * 3, "it has 3 nodes, and the demo needs 4 or more"),
        ("a,8 cores,1024,0,\n", "line 2: cpu_milli should be a whole number >= 0, found '8 cores'"),
    ],
)
def test_a_trace_that_cannot_be_used_is_named_with_what_is_wrong(lines: str, said: str, tmp_path: Path) -> None:
    trace = tmp_path / "nodes.csv"
    trace.write_text(TRACE + lines)
    code, words = refused("--node-trace", str(trace))
    assert code == 2
    assert str(trace) in words
    assert said in words


def test_the_demo_has_help_with_examples() -> None:
    shown = CliRunner().invoke(app, ["demo", "--help"])
    assert shown.exit_code == 0
    for example in ("escher demo --nodes 32", "escher demo --real"):
        assert f"Example: {example}" in shown.stdout


def test_its_pods_ask_for_nothing_that_the_embedded_cluster_does_not_heed() -> None:
    assert unheeded(manifest(Ask("a", 1, {"cpu": "1"}), 0)["spec"]) == []
