"""What is known to be vulnerable fails the audit; where nobody can be asked it says so, and fails only if it has to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supply_chain.audited import ROOT, ran
from tests.supply_chain.osv import Service, serving

pytestmark = pytest.mark.longer
HASH = "a" * 64


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as found:
        yield found


@pytest.fixture
def locks(tmp_path: Path) -> list[Path]:
    """Two, of which the second has another version of what is in the first, and something for Windows alone."""
    texts = [
        f"# written by hand\nalpha==1.0 \\\n    --hash=sha256:{HASH}\nbeta==2.0 \\\n    --hash=sha256:{HASH}\n",
        f"alpha==1.1 \\\n    --hash=sha256:{HASH}\nbeta==2.0 \\\n    --hash=sha256:{HASH}\n"
        f"gamma==3.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{HASH} \\\n    --hash=sha256:{'b' * 64}\n",
    ]
    made = [tmp_path / f"{number}.txt" for number in range(len(texts))]
    for path, text in zip(made, texts, strict=True):
        path.write_text(text)
    return made


def test_every_package_of_every_lock_is_asked_about_wherever_it_would_be_installed(
    service: Service, locks: list[Path]
) -> None:
    ended = ran("audit.py", *locks, "--osv-url", service.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "audited by osv: 4 packages of 2 locks, 0 of them unknown there; none is vulnerable\n"
    assert set(service.asked) == {("alpha", "1.0"), ("alpha", "1.1"), ("beta", "2.0"), ("gamma", "3.0")}


def test_what_is_vulnerable_fails_it_and_is_named_with_what_mends_it(service: Service, locks: list[Path]) -> None:
    service.known["alpha", "1.1"] = "1.2"
    ended = ran("audit.py", *locks, "--osv-url", service.url)
    assert ended.returncode == 1
    assert ended.stdout == "vulnerable: alpha 1.1: PYSEC-2026-1 = CVE-2026-1; mended in 1.2\n"


def test_the_first_package_may_be_the_one(service: Service, locks: list[Path]) -> None:
    service.known["alpha", "1.0"] = "1.1"
    assert ran("audit.py", locks[0], "--osv-url", service.url).returncode == 1


def test_what_is_known_and_accepted_does_not_fail_it(service: Service, locks: list[Path]) -> None:
    service.known["alpha", "1.0"] = "1.1"
    ended = ran("audit.py", *locks, "--osv-url", service.url, "--ignore-vuln", "PYSEC-2026-1")
    assert ended.returncode == 0, ended.stdout


def test_where_nobody_answers_it_says_so_and_fails_only_if_it_has_to(locks: list[Path]) -> None:
    with socket.socket() as taken:
        # Nobody listens there.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        ended = ran("audit.py", *locks, "--osv-url", url)
        required = ran("audit.py", *locks, "--osv-url", url, "--required")
    told = "not audited: 4 packages of 2 locks, for no vulnerability service could be asked (osv: "
    assert ended.returncode == 0
    assert ended.stdout.startswith(told)
    assert "refused" in ended.stdout
    assert required.returncode == 2
    assert required.stdout.startswith(told)


def test_a_service_that_fails_has_audited_nothing(service: Service, locks: list[Path]) -> None:
    service.status = 503
    ended = ran("audit.py", *locks, "--osv-url", service.url)
    assert ended.returncode == 0
    assert ended.stdout.startswith("not audited: ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alpha>=1\n", "lock.txt:1: no line of a lock: 'alpha>=1'; write the lock anew with `make lock`"),
        ("alpha==1.0\n", "lock.txt: there is no hash of alpha; write the lock anew with `make lock`"),
        (f"    --hash=sha256:{HASH}\n", "lock.txt:1: no line of a lock"),
    ],
)
def test_what_is_no_lock_is_not_audited_as_one(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "lock.txt").write_text(text)
    ended = ran("audit.py", tmp_path / "lock.txt")
    assert ended.returncode == 1
    assert complaint in ended.stderr


def test_what_pip_audit_cannot_make_sense_of_is_no_green_build(service: Service, tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text(f"alpha==1.x.y \\\n    --hash=sha256:{HASH}\n")
    ended = ran("audit.py", tmp_path / "lock.txt", "--osv-url", service.url)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "pip-audit cannot do what it is asked: " in ended.stderr


def test_our_own_locks_can_be_read(service: Service) -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))
    service.status = 503
    ended = ran("audit.py", *locks, "--osv-url", service.url)
    assert f" packages of {len(locks)} locks" in ended.stdout, ended.stderr
