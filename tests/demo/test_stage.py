"""The stage on a terminal, looked at through one in memory, and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lab.demo.picture import Held, NodeSeen, Place, Seen
from lab.demo.recording.screen import Screen
from lab.demo.stage import Stage

BEFORE = Seen((NodeSeen("node-0", 2), NodeSeen("node-1", 2)), 2)
AFTER = Seen((NodeSeen("node-0", 2, (Place("A", Held.BOUND),)), NodeSeen("node-1", 2)), 2)


class Terminal:
    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.written = io.StringIO()
        self.console = Console(
            file=self.written, force_terminal=True, width=columns, height=lines, color_system="standard", _environ={}
        )
        self._screen = Screen(columns, lines)
        self._fed = 0

    def shows(self) -> list[str]:
        text = self.written.getvalue().replace("\n", "\r\n")
        self._screen.feed(text[self._fed :])
        self._fed = len(text)
        return [line for line in self._screen.text() if line]


def test_the_picture_stands_under_the_story_and_leaves_with_the_block() -> None:
    terminal = Terminal()
    stage = Stage(terminal.console)
    with stage.live(lambda: BEFORE) as shown:
        assert shown
        stage.scene("A scene")
        stage.good("Something has come true.")
        assert [line.split()[0] for line in terminal.shows()] == ["1", "✓", "──", "node-0"]
    assert terminal.shows() == ["1  A scene", "   ✓ Something has come true."]


def test_the_picture_is_never_older_than_the_story() -> None:
    terminal, now = Terminal(), BEFORE
    stage = Stage(terminal.console)
    with stage.live(lambda: now):
        now = AFTER
        stage.say("A is bound.")
        assert terminal.shows()[-1].split() == ["node-0", "A·", "··"]


def test_what_has_not_changed_is_not_drawn_again() -> None:
    terminal = Terminal()
    stage = Stage(terminal.console)
    with stage.live(lambda: BEFORE):
        stage.refresh()
        before = len(terminal.written.getvalue())
        for _ in range(100):
            stage.refresh()
        assert len(terminal.written.getvalue()) == before


def test_what_is_waited_for_stands_in_the_picture() -> None:
    terminal = Terminal()
    stage = Stage(terminal.console)
    with stage.live(lambda: BEFORE):
        with stage.waiting("kube-scheduler tries"):
            assert terminal.shows()[-1].strip() == "kube-scheduler tries …"
        stage.refresh()
        assert "tries" not in "".join(terminal.shows())


def test_a_terminal_that_is_too_low_has_the_story_alone() -> None:
    terminal = Terminal(lines=10)
    stage = Stage(terminal.console)
    with stage.live(lambda: BEFORE) as shown:
        assert not shown
        stage.say("A is bound.")
    assert terminal.shows() == ["     A is bound."]


@pytest.mark.parametrize("width", [80, 120])
def test_without_a_terminal_there_are_plain_lines_and_no_blank_ones_in_a_row(width: int) -> None:
    written = io.StringIO()
    stage = Stage(Console(file=written, width=width, highlight=False))
    stage.title("Title", "under it")
    with stage.live(lambda: BEFORE) as shown:
        assert not shown
        for number in range(2):
            stage.scene(f"Scene {number} with a title that takes more than one line on a narrow terminal, and no more")
            stage.say("")
            stage.say("\n")
            with stage.waiting("something"):
                stage.refresh()
            stage.map(AFTER.nodes)
            stage.command("escher explain gang a")
            stage.explanation({"summary": "waits", "groups": [], "remedies": ["wait"]})
            stage.bad("Something has not come true.")
    stage.table([("plain", "1 ms")], ("approach", "gang"), "foot")
    stage.end("All as promised.", good=True)
    text = written.getvalue()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\n\n\n" not in text
    assert not text.startswith("\n")
    assert max(map(len, text.splitlines())) <= width
    assert "     node-0  A· ··\n" in text
