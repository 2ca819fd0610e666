"""What the pages in docs/policies/ show is done, block by block and in order, and is as the page says.

- ```yaml: manifests, applied to the API server of the page's cluster as `kubectl apply` does. What has a condition
  `Ready` must have become so. Namespace `team-a` where none is said.
- ```sh: lines of `curl` and `escher`, carried out against the page's service. Each must succeed; one that ends in
  `# 422` must be answered so.
- ```pycon: a session with the page's service, as doctest. `bound("web-0", "web-1")` waits until those pods have nodes,
  and answers these; `waits("web-2")` is whether it has none ten seconds later; `lose("node-1")`: that node is gone.
- ```python: an application without the service, on a cluster of its own: `async def main(...)` is run. It may take
  `port` (a PolicyPort), `requests` (the API server), and, to be awaited, `create(pod)`, `bound(...)`, `waits(...)` and
  `lose(...)`; it asserts what the page promises.

A cluster has four nodes of 8 CPU, `node-0` to `node-3`. All of it is in virtual time.
"""

from __future__ import annotations

import asyncio
import doctest
import inspect
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from extender.cli.main import app
from extender.kube import errors
from extender.shipped import crds
from kubesim.kinds import BUILT_IN, NODE, POD, Json, Kind, custom
from lab.simulation import Simulation
from tests.escher_k8s.conftest import Stage, reaching
from tests.escher_k8s.polling_port import MERGE_PATCH, PollingPort

FOLDER = Path(__file__).parents[2] / "docs" / "policies"
LANGUAGES = ("yaml", "sh", "pycon", "python")
NAMESPACE = "team-a"
_LONG, _SHORT = 120.0, 10.0


class Untrue(AssertionError):
    """What the page says is not so."""


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    """Of its first line of text in the page, from 1."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}:{self.language or 'unnamed'}"


def blocks_of(page: str, text: str) -> list[Block]:
    found: list[Block] = []
    open_at: int | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if open_at is None:
            open_at = number
        else:
            said = "\n".join(lines[open_at + 1 : number]) + "\n"
            found.append(Block(page, open_at + 2, lines[open_at].removeprefix("```").strip(), said))
            open_at = None
    if open_at is not None:
        raise Untrue(f"{page}:{open_at + 1}: the block never ends")
    return found


def pages() -> dict[str, list[Block]]:
    """The blocks of each page, in order."""
    return {path.name: blocks_of(path.name, path.read_text()) for path in sorted(FOLDER.glob("*.md"))}


class Played:
    """One page on one cluster: a block is done after those before it."""

    def __init__(self, blocks: list[Block]) -> None:
        self._blocks = blocks
        self._done = 0
        self._untrue: Exception | None = None
        self._stage: Stage | None = None
        self._names: dict[str, Any] = {}

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()

    def do(self, block: Block) -> None:
        """It is done, and those before it; raises Untrue, or what went wrong, there or before. A block is done once."""
        if block.language == "python":
            run_application(block)
            return
        before = [each for each in self._blocks if each.language != "python"]
        upto = before.index(block) + 1
        if self._stage is None:
            self._stage = Stage()
            self._names.update(_watching(self._stage))
        if self._untrue is not None:
            raise Untrue(f"{block}: what is shown before it went wrong") from self._untrue
        with reaching(self._stage):
            for each in before[self._done : upto]:
                self._done += 1
                try:
                    getattr(self, f"_{each.language}", _unknown)(self._stage, each)
                except Exception as error:
                    self._untrue = error
                    raise
                self._stage.pass_time(2)

    def _yaml(self, stage: Stage, block: Block) -> None:
        manifests = list(yaml.safe_load_all(block.text))
        for manifest in manifests:
            stage.run(_apply(stage.simulation, manifest))
        stage.pass_time(1)
        for manifest in manifests:
            there = stage.run(stage.simulation.ask("GET", _path(manifest)))
            ready = [each for each in there.get("status", {}).get("conditions", ()) if each["type"] == "Ready"]
            if manifest["kind"] == "EscherPolicy" and [each["status"] for each in ready] != ["True"]:
                raise Untrue(f"{block}: {manifest['metadata']['name']} is not in force: {ready}")

    def _sh(self, stage: Stage, block: Block) -> None:
        lines = [line for line in block.text.replace("\\\n", " ").splitlines() if line.strip()]
        if not lines:
            raise Untrue(f"{block}: nothing is typed")
        for line in lines:
            match shlex.split(line, comments=True):
                case ["curl", *words]:
                    with httpx.Client(transport=stage.blocking) as client:
                        answer = client.send(request_of(words))
                    expected = re.search(r"# (\d{3})\b", line)
                    if str(answer.status_code) != expected[1] if expected else not answer.is_success:
                        raise Untrue(f"{block}: {line} is answered by {answer.status_code} {answer.text}")
                case ["escher", *words]:
                    done = CliRunner().invoke(app, words)
                    if done.exit_code:
                        raise Untrue(f"{block}: {line} ends with {done.exit_code}: {done.output}")
                case _:
                    raise Untrue(f"{block}: nobody carries out {line!r}")

    def _pycon(self, stage: Stage, block: Block) -> None:
        session = doctest.DocTestParser().get_doctest(block.text, self._names, str(block), None, 0)
        if not any(example.want for example in session.examples):
            raise Untrue(f"{block}: no answer is shown")
        told: list[str] = []
        failed, _ = doctest.DocTestRunner().run(session, out=told.append, clear_globs=False)
        self._names.update(session.globs)
        if failed:
            raise Untrue("".join(told))


def _unknown(stage: Stage, block: Block) -> None:
    raise Untrue(f"{block}: nobody carries out blocks in {block.language!r}; there are {', '.join(LANGUAGES)}")


def run_application(block: Block) -> None:
    """Its `main` has run on a cluster of its own."""
    if "\n    assert " not in re.sub(r"\n +", "\n    ", block.text):
        raise Untrue(f"{block}: it asserts nothing")
    names: dict[str, Any] = {"__name__": f"docs/policies/{block.page}"}
    exec(compile(block.text, str(block), "exec"), names)
    if not inspect.iscoroutinefunction(main := names.get("main")):
        raise Untrue(f"{block}: there is no `async def main`")
    stage = Stage()
    try:
        with reaching(stage):
            offered = {**_awaited(stage.simulation, "default"), "requests": stage.simulation.requests}
            offered["port"] = PollingPort(stage.simulation, "default")
            stage.run(main(**{name: offered[name] for name in inspect.signature(main).parameters}))
    finally:
        stage.close()


# -- what pages are given --------------------------------------------------------------------------------------------


def _awaited(simulation: Simulation, namespace: str) -> dict[str, Any]:
    async def create(pod: Json) -> None:
        metadata = {"namespace": namespace, **pod["metadata"]}
        await simulation.create({**pod, "metadata": metadata}, POD)

    async def nodes(names: tuple[str, ...]) -> list[str | None]:
        pods = [await simulation.ask("GET", POD.path(namespace, name)) for name in names]
        return [pod["spec"].get("nodeName") for pod in pods]

    async def bound(*names: str) -> list[str]:
        """Their nodes, once they have some."""
        until = asyncio.get_running_loop().time() + _LONG
        while None in (found := await nodes(names)):
            if asyncio.get_running_loop().time() > until:
                raise Untrue(f"within {_LONG:.0f} s {dict(zip(names, found, strict=True))} have nodes")
            await asyncio.sleep(0.1)
        return [str(node) for node in found]

    async def waits(*names: str) -> bool:
        """Whether none of them has a node, ten seconds from now."""
        await asyncio.sleep(_SHORT)
        return not any(await nodes(names))

    async def lose(node: str) -> None:
        """The node is gone, and what ran there."""
        await simulation.ask("DELETE", NODE.path(name=node))
        await asyncio.sleep(_SHORT)
        for pod in (await simulation.ask("GET", POD.path()))["items"]:
            if pod["spec"].get("nodeName") == node:
                path = POD.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
                await simulation.ask("DELETE", path, {"gracePeriodSeconds": 0})

    return {"create": create, "bound": bound, "waits": waits, "lose": lose}


def _watching(stage: Stage) -> Mapping[str, Any]:
    awaited = _awaited(stage.simulation, NAMESPACE)
    return {name: lambda *given, call=awaited[name]: stage.run(call(*given)) for name in ("bound", "waits", "lose")}


# -- what is typed ---------------------------------------------------------------------------------------------------


def request_of(words: list[str]) -> httpx.Request:
    """What `curl` sends that is called with these."""
    left, urls = list(words), list[str]()
    method, body, headers = "", None, dict[str, str]()
    while left:
        match left.pop(0):
            case "-X" | "--request":
                method = left.pop(0)
            case "-d" | "--data" | "--json" as option:
                body = left.pop(0)
                kind = "application/json" if option == "--json" else "application/x-www-form-urlencoded"
                headers.setdefault("Content-Type", kind)
            case "-H" | "--header":
                name, _, value = left.pop(0).partition(":")
                headers[name.strip()] = value.strip()
            case "-s" | "-sS" | "-f" | "-i" | "-N":
                pass
            case word if word.startswith("-"):
                raise Untrue(f"nobody carries out curl's {word}")
            case url:
                urls.append(url)
    if len(urls) != 1:
        raise Untrue(f"one address is to be asked, not {urls}")
    return httpx.Request(method or ("GET" if body is None else "POST"), urls[0], content=body, headers=headers)


@cache
def _kinds() -> dict[tuple[str, str], Kind]:
    known = [*BUILT_IN, *(kind for definition in crds.shipped_definitions() for kind in custom(definition))]
    return {(kind.api_version, kind.name): kind for kind in known}


def _path(manifest: Json, *, whole: bool = False) -> str:
    kind = _kinds()[manifest["apiVersion"], manifest["kind"]]
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", NAMESPACE) if kind.namespaced else ""
    return kind.path(namespace, "" if whole else metadata["name"])


async def _apply(simulation: Simulation, manifest: Json) -> None:
    """It is there as the manifest says; of one that is there already, what the manifest does not say stays."""
    try:
        await simulation.ask("PATCH", _path(manifest), manifest, content_type=MERGE_PATCH)
    except errors.Gone:
        await simulation.ask("POST", _path(manifest, whole=True), manifest)


@contextmanager
def played(blocks: list[Block]) -> Iterator[Played]:
    page = Played(blocks)
    try:
        yield page
    finally:
        page.close()


def cases() -> list[Any]:
    """Each block of each page, as a parameter of a test."""
    return [pytest.param(block, id=str(block)) for blocks in pages().values() for block in blocks]
