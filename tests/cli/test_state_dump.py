"""`escher state --dump`, and what asks such a file: the same answers, elsewhere; and what is refused, and how."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from extender.cli.main import app
from extender.core.policies.policy_types import AntiAffinity, PolicyInForce
from tests.app.world import World
from tests.builders import gang_pods, pod
from tests.cli.conftest import Escher

pytestmark = pytest.mark.anyio
ASKED = [
    ["explain", "gang", "train", "--json"],
    ["explain", "pod", "train-0", "--json"],
    ["what-if", "--gang", "more", "--size", "3", "--each", "cpu=8", "--drain", "n2", "--json"],
    ["what-if", "--gang", "more", "--size", "30", "--each", "cpu=8"],
]


def _fill(world: World) -> None:
    """A gang that waits, for it has no room."""
    for member in gang_pods("train", 4, {"cpu": 8000}):
        world.do(world.scheduler.observe(member))
        world.do(world.scheduler.filter(member, list(world.scheduler.cache.nodes)))
    world.do(world.scheduler.govern("team", "apart", PolicyInForce(AntiAffinity())))


@pytest.mark.parametrize("name", ["state.json", "state.json.gz"])
async def test_a_dump_is_asked_where_no_service_is(
    escher: Escher, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _fill(world)
    file = tmp_path / name
    done = await escher("state", "--dump", str(file))
    assert done.exit_code == 0, done.stderr
    assert f"{file}: 0.0 MiB of state" in " ".join(done.stderr.split())
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == [name]
    content = gzip.decompress(file.read_bytes()) if name.endswith(".gz") else file.read_bytes()
    assert json.loads(content.splitlines()[0])["kind"] == "escher-state-dump"
    live = [await escher(*asked) for asked in ASKED]
    monkeypatch.setenv("ESCHER_URL", "http://127.0.0.1:1")
    for asked, here in zip(ASKED, live, strict=True):
        there = await escher(*asked, "--state", str(file))
        assert "UTC, when" in there.stderr
        assert there.exit_code == here.exit_code
        if "--json" in asked:
            answers = [json.loads(each.stdout) for each in (here, there)]
            for answer in answers:
                # The live one's clock goes on, and an embedded cluster's own notes are no dump's.
                for no_part in ("reason_since", "unheeded"):
                    answer.pop(no_part, None)
            assert answers[0] == answers[1]
        else:
            assert there.stdout == here.stdout


async def test_a_dump_goes_to_standard_output(escher: Escher, world: World) -> None:
    for arguments in (["state", "--dump"], ["state", "--dump", "-"]):
        done = await escher(*arguments)
        assert done.exit_code == 0
        assert json.loads(done.stdout_bytes.splitlines()[-1])["end"] > 3


async def test_how_long_it_had_waited_is_told_as_of_the_dump(escher: Escher, world: World, tmp_path: Path) -> None:
    since = time.time() - 2 * 3600
    world.do(world.scheduler.observe(pod("p", {"cpu": 9000}, created=since)))
    file = tmp_path / "state.json"
    await escher("state", "--dump", str(file))
    # As if it had been written an hour later.
    now = re.search(rb'"now":([0-9.]+)', content := file.read_bytes())
    assert now is not None
    file.write_bytes(content.replace(now[0], b'"now":' + str(since + 3 * 3600).encode()))
    told = (await escher("explain", "pod", "p", "--state", str(file))).stdout
    assert "it has waited for 3 h (since" in " ".join(told.split())


async def test_what_is_not_in_the_dump_is_told(escher: Escher, world: World, tmp_path: Path) -> None:
    file = tmp_path / "state.json.gz"
    await escher("state", "--dump", str(file))
    refused = await escher("explain", "pod", "absent", "--state", str(file))
    assert (refused.exit_code, "there is no unfinished pod absent" in refused.stderr) == (1, True)


async def test_nothing_is_left_of_a_dump_that_fails(
    escher: Escher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESCHER_URL", "http://127.0.0.1:1")
    failed = await escher("state", "--dump", str(tmp_path / "state.json.gz"))
    assert failed.exit_code == 1
    assert "cannot be reached" in failed.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["state", "state.json"], "state.json is a file for a state dump: give --dump with it"),
        (["state", "--dump", "--node", "n1"], "--dump writes the whole state; the only other options"),
        (["state", "--dump", "/nowhere/state.json"], "--dump is /nowhere/state.json: No such file or directory"),
        (["explain", "gang", "g", "--state", "/nowhere"], "--state is /nowhere: No such file or directory"),
        (
            ["what-if", "--drain", "n1", "--state", "/dev/null"],
            "--state is /dev/null: it is not a state dump: write one",
        ),
    ],
)
async def test_what_cannot_be_done_is_told(escher: Escher, arguments: list[str], said: str) -> None:
    refused = await escher(*arguments)
    assert refused.exit_code == 2
    assert said in " ".join(refused.stderr.split())


async def test_a_dump_that_was_cut_off_is_refused(escher: Escher, world: World, tmp_path: Path) -> None:
    file = tmp_path / "state.json.gz"
    await escher("state", "--dump", str(file))
    file.write_bytes(file.read_bytes()[:-20])
    refused = await escher("what-if", "--drain", "n1", "--state", str(file))
    assert refused.exit_code == 2
    assert "it ends too early" in refused.stderr


async def test_a_dump_that_somebody_has_edited_into_nonsense_is_refused(
    escher: Escher, world: World, tmp_path: Path
) -> None:
    await world.set("r", 4, "n1")
    file = tmp_path / "state.json"
    await escher("state", "--dump", str(file))
    file.write_bytes(file.read_bytes().replace(b'{"escher.dev/team.r":4}', b'{"cpu":4}'))
    refused = await escher("what-if", "--drain", "n1", "--state", str(file))
    assert refused.exit_code == 2
    assert "capacity of cpu on n1 cannot be set to 4" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("command", [["state"], ["what-if"], ["explain", "pod"], ["explain", "gang"]])
def test_help_shows_an_example_with_a_dump(command: list[str]) -> None:
    told = CliRunner().invoke(app, [*command, "--help"])
    assert "state.json.gz" in told.stdout
