"""Measures of the code that may only fall: how much there is to read, and how long the path of one decision is.

    python -m tests.frozen.ratchets            # prints them beside the baseline
    python -m tests.frozen.ratchets --write    # lowers the baseline to what was measured; it raises none

The baseline is tests/frozen/ratchets.json. A test fails where a measure is above it, and where it is more than a
hundredth below it: the same commit lowers the baseline.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lab.compare.lines import code_lines
from loadtests.goals.measuring.in_process import Cluster

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).with_name("ratchets.json")
DISTRIBUTIONS = ("extender", "lab", "kubesim", "loadtests", "escher_k8s")
MOST_MODULES, MOST_LINES, MOST_WORDS, LONGEST_LINE = 12, 400, 25, 100
"""Goals: modules in a folder, lines of a file, words of a sentence, characters of a docstring's first line."""
_OWN_WORDS = re.compile(
    r"\b(whoever|whom|whomever|somebody|nobody|anybody|heeds?|heeded|of which|so many|so long|must not know|let be"
    r"|made to leave|tells? of|told of)\b",
    re.IGNORECASE,
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*|]|\|")


def measured() -> dict[str, int]:
    """By name. What is at its goal or below is left out."""
    found = dict(sorted([*_of_folders(), *_of_files(), *_of_prose(), *_of_paths()]))
    return {name: number for name, number in found.items() if number}


def _modules(distribution: str) -> list[Path]:
    return sorted((ROOT / distribution).rglob("*.py"))


def _of_folders() -> Iterator[tuple[str, int]]:
    for distribution in DISTRIBUTIONS:
        files = [each for each in _modules(distribution) if each.name != "__init__.py"]
        for folder, number in Counter(each.parent for each in files).items():
            if number > MOST_MODULES:
                yield f"modules in {folder.relative_to(ROOT)}", number
        named = Counter(each.name for each in files if each.name != "__main__.py")
        yield f"modules of {distribution} that share a base name", sum(n for n in named.values() if n > 1)


def _of_files() -> Iterator[tuple[str, int]]:
    wings: Counter[str] = Counter()
    for distribution in DISTRIBUTIONS:
        for file in _modules(distribution):
            text, within = file.read_text(), file.relative_to(ROOT).parts
            wings["/".join(within[: min(2, len(within) - 1)])] += code_lines(text)
            if (lines := text.count("\n")) > MOST_LINES:
                yield f"lines of {file.relative_to(ROOT)}", lines
    for wing, lines in wings.items():
        yield f"code lines of {wing}", lines


def _of_prose() -> Iterator[tuple[str, int]]:
    for distribution in DISTRIBUTIONS:
        said = [text for file in _modules(distribution) for text in _prose_of(file.read_text())]
        yield f"words of our own in {distribution}", sum(len(_OWN_WORDS.findall(text)) for text in said)
        yield f"long sentences in {distribution}", sum(map(_long_sentences, said))
        first = (text.strip().splitlines()[0] for text in said if text.strip() and not text.startswith("#"))
        yield f"long first lines in {distribution}", sum(len(line) > LONGEST_LINE for line in first)
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "comparison" not in page.parts]
    texts = [page.read_text() for page in (*pages, ROOT / "README.md")]
    yield "words of the docs", sum(len(text.split()) for text in texts)
    yield "words of our own in the docs", sum(len(_OWN_WORDS.findall(text)) for text in texts)
    yield "long sentences in the docs", sum(map(_long_sentences, texts))
    for page in ("architecture", "development"):
        yield f"words of docs/{page}.md", len((ROOT / f"docs/{page}.md").read_text().split())


def _prose_of(source: str) -> Iterator[str]:
    """Its docstrings, also of values, and its comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
    yield from (line.strip() for line in source.splitlines() if line.lstrip().startswith("# "))


def _long_sentences(text: str) -> int:
    return sum(len(sentence.split()) > MOST_WORDS for sentence in _SENTENCE_ENDS.split(text))


def _of_paths() -> Iterator[tuple[str, int]]:
    """Calls of functions of the service, and files that they are in, of one decision on 50 nodes."""
    cluster = Cluster(50, 50)
    pod, [first, second] = cluster.pod("p", 100), cluster.gang(100, 2)
    names = cluster.names
    cluster.do(cluster.scheduler.observe(pod))
    # What is done once, such as imports and caches, is done before; the first pod after a gang indexes its places.
    for each in (*cluster.gang(100, 2), cluster.pod("before", 100)):
        cluster.do(cluster.scheduler.filter(each, names))
    # As the timer does after each decision.
    cluster.scheduler.next_deadline()
    yield from _path("filter of an ordinary pod", lambda: cluster.do(cluster.scheduler.filter(pod, names)))
    yield from _path("filter of a gang's first member", lambda: cluster.do(cluster.scheduler.filter(first, names)))
    yield from _path("filter of its second", lambda: cluster.do(cluster.scheduler.filter(second, names)))
    yield from _path("a pod's deletion", lambda: cluster.do(cluster.scheduler.forget(pod)))


def _path(name: str, decide: Callable[[], object]) -> Iterator[tuple[str, int]]:
    calls: Counter[str] = Counter()

    def heard(frame: Any, event: str, _: object) -> None:
        if event == "call" and "/extender/" in (file := frame.f_code.co_filename):
            calls[file] += 1

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        decide()
    finally:
        sys.setprofile(before)
    yield f"calls of {name}", calls.total()
    yield f"files of {name}", len(calls)


def main() -> None:
    recorded: dict[str, int] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found = measured()
    for name in sorted(found.keys() | recorded.keys()):
        now, before = found.get(name, 0), recorded.get(name, 0)
        sys.stdout.write(f"{name:<70}{now:>8}{'' if now == before else f'  (baseline: {before})'}\n")
    if "--write" in sys.argv[1:]:
        lowered = {name: min(number, recorded.get(name, 0)) if recorded else number for name, number in found.items()}
        RECORDED.write_text(json.dumps(lowered, indent=1) + "\n")


if __name__ == "__main__":
    main()
