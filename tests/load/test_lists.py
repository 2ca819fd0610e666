"""What measures the pauses of lists reads all pods, bound ones and gangs, as the service does."""

from __future__ import annotations

import pytest
import structlog

from loadtests.lists import main, take_in

pytestmark = pytest.mark.anyio


async def test_all_pods_are_taken_in_and_the_pauses_are_told() -> None:
    taken = await take_in(1_200)
    assert taken.pods == 1_200
    assert 0 < taken.pause <= taken.seconds
    assert 0 < taken.pause_again <= taken.seconds_again


def test_what_is_no_number_of_pods_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    log = structlog.get_config()
    with pytest.raises(SystemExit):
        main(["--pods", "0"])
    assert structlog.get_config() == log
    assert "--pods must be 1 or more" in capsys.readouterr().err
