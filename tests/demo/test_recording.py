"""The recording: a terminal in memory, what it showed as SVG, and the one in the README."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.demo.recording.__main__ import main, record
from lab.demo.recording.film import Frame, film
from lab.demo.recording.screen import Look, Run, Screen

ROOT = Path(__file__).parent.parent.parent
DEMO = ROOT / "docs" / "demo.svg"


def screen(*written: str, columns: int = 10, lines: int = 3) -> Screen:
    made = Screen(columns, lines)
    for text in written:
        made.feed(text)
    return made


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("ab\r\ncd", ["ab", "cd", ""]),
        ("ab\rc", ["cb", "", ""]),
        ("1\r\n2\r\n3\r\n4", ["2", "3", "4"]),
        ("0123456789", ["0123456789", "", ""]),
        ("0123456789x", ["0123456789", "x", ""]),
        ("0123456789\r\nx", ["0123456789", "x", ""]),
        ("ab\r\ncd\x1b[1A\x1b[2Kx", ["  x", "cd", ""]),
        ("abcd\x1b[2D\x1b[K", ["ab", "", ""]),
        ("abcd\x1b[2D\x1b[1K", ["   d", "", ""]),
        ("ab\r\ncd\x1b[H\x1b[J", ["", "", ""]),
        ("ab\x1b[2;3Hx\x1b[1Gy", ["ab", "y x", ""]),
        ("\x1b[?25lab\x1b]0;title\x07c\x1b[?25h", ["abc", "", ""]),
        ("a\bb", ["b", "", ""]),
    ],
)
def test_the_screen_shows_what_a_terminal_would(written: str, shown: list[str]) -> None:
    assert screen(written).text() == shown
    assert screen(*written).text() == shown, "whatever the pieces in which it came"


def test_colours_are_kept_and_ended() -> None:
    seen = screen("\x1b[1;31ma\x1b[22mb\x1b[39;46mc\x1b[0m d\x1b[2;7;92me\x1b[m").lines()[0]
    assert seen == (
        Run(0, "a", Look("red", bold=True)),
        Run(1, "b", Look("red")),
        Run(2, "c", Look(behind="cyan")),
        Run(3, " d", Look()),
        Run(5, "e", Look("green", dim=True, turned=True)),
    )


def test_a_film_is_xml_and_has_every_frame_and_each_line_once() -> None:
    first, second = screen("a<b\r\n\x1b[32mx"), screen("a<b\r\n\x1b[1;30;46mx & y")
    text = film([Frame(5.0, first.lines()), Frame(9.0, second.lines())], 10, "two", hold=3.0, longest=1.0)
    root = ElementTree.fromstring(text)
    svg = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in root.iter(f"{svg}text")] == ["a<b", "x", "x & y"]
    assert len(list(root.iter(f"{svg}use"))) == 4
    assert "animation:film 4.00s step-end infinite" in text
    assert "25.000%{transform:translateY(-54px)}" in text
    assert "prefers-reduced-motion" in text


def test_a_command_is_recorded_in_a_terminal_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "it.svg"
    program = "import os, sys; print(sys.stdout.isatty(), tuple(os.get_terminal_size()))"
    frames, code = record([sys.executable, "-c", program], 72, 20)
    assert code == 0
    assert "True (72, 20)" in [run.text for line in frames[-1].lines for run in line]
    assert main(["--out", str(out), "--columns", "60", "--", sys.executable, "-c", "print('seen')"]) == 0
    assert ">seen</text>" in out.read_text()


def test_a_command_that_fails_leaves_the_file_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "it.svg"
    out.write_text("before")
    assert main(["--out", str(out), "--", sys.executable, "-c", "raise SystemExit('it went wrong')"]) == 1
    assert out.read_text() == "before"
    assert "it went wrong" in capsys.readouterr().err


def test_the_recording_in_the_readme_is_small_and_loads_nothing() -> None:
    text = DEMO.read_text()
    assert len(text) < 400_000
    ElementTree.fromstring(text)
    assert set(re.findall(r"\w+://[^\"<\s]*", text)) - {"http://www.w3.org/2000/svg"} <= set(
        re.findall(r"http://127\.0\.0\.1:\d+", text)
    )
    assert "@import" not in text
    assert "url(" not in text
    assert "All as promised" in text
    assert "docs/demo.svg" in (ROOT / "README.md").read_text()
