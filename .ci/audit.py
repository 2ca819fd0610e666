"""Asks a vulnerability service about every package of the locks, by pip-audit.

Ends with 1 where one is known to be vulnerable. Where no service can be asked it says "not audited" and why, and ends
with 0, for that is nothing that a change could mend; with --required it ends with 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lock

SECONDS = 5
"""For one answer."""
SECONDS_IN_ALL = 50
_LONGEST = 300
_OF_SERVICES = (
    *("requests.exceptions.", "urllib3.exceptions.", "pip_audit._service."),
    "ERROR:pip_audit._cli:Tip: your network",
)
"""How pip-audit's last line begins where a service has not answered, or not as it should."""


class Silent(Exception):
    """A service could not be asked; `str` is why."""


class Report(NamedTuple):
    asked: int
    unknown: list[str]
    """Packages of which the service knows nothing."""
    vulnerable: list[str]
    """A line for each vulnerability."""


def ask(packages: Iterable[lock.Locked], service: Sequence[str], more: Sequence[str] = ()) -> Report:
    """What the service knows of them. Raises Silent."""
    # pip-audit takes no name twice, with two versions.
    apart: list[dict[str, lock.Locked]] = []
    for each in packages:
        room = next((together for together in apart if each.name not in together), None)
        if room is None:
            apart.append(room := {})
        room[each.name] = each
    report = Report(0, [], [])
    for together in apart:
        told = _told([*together.values()], [*service, *more])
        report = Report(
            report.asked + len(told),
            [*report.unknown, *(each["name"] for each in told if "skip_reason" in each)],
            [*report.vulnerable, *(_line(each, known) for each in told for known in each.get("vulns", ()))],
        )
    if len(report.unknown) == report.asked:
        raise Silent("it knows none of the packages")
    return report


def _told(packages: Sequence[lock.Locked], more: Sequence[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each. Raises Silent; exits where it takes offence at what it was asked."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        # Wherever they are installed: without markers.
        for each in packages:
            file.write(f"{each.name}=={each.version} {' '.join(f'--hash=sha256:{known}' for known in each.hashes)}\n")
        file.flush()
        command = [str(Path(sys.executable).with_name("pip-audit")), "--disable-pip", "--require-hashes"]
        command += ["--progress-spinner=off", "--format=json", "--desc=off", f"--timeout={SECONDS}", *more]
        command += ["--requirement", file.name]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_IN_ALL, check=False)
        except subprocess.TimeoutExpired:
            raise Silent(f"no answer within {SECONDS_IN_ALL} s") from None
    try:
        found: list[dict[str, Any]] = json.loads(ended.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        said = (ended.stderr.strip().splitlines() or [f"pip-audit ended with {ended.returncode}"])[-1]
        if not said.startswith(_OF_SERVICES):
            # A green build must not come of a defect of ours.
            raise SystemExit(f"pip-audit cannot do what it is asked: {ended.stderr[-_LONGEST:]}") from None
        raise Silent(said.rpartition("(Caused by ")[2][:_LONGEST]) from None
    return found


def _line(package: dict[str, Any], known: dict[str, Any]) -> str:
    names = " = ".join([known["id"], *known.get("aliases", ())])
    mended = ", ".join(known["fix_versions"]) or "no version"
    return f"vulnerable: {package['name']} {package['version']}: {names}; mended in {mended}"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("locks", nargs="+", type=Path)
    parser.add_argument("--osv-url", help="ask this service, which speaks as OSV does, instead of the usual ones")
    parser.add_argument("--required", action="store_true", help="fail where something could not be audited")
    parser.add_argument("--ignore-vuln", action="append", default=[], metavar="ID", help="known, and accepted")
    given = parser.parse_args()
    packages = sorted({each._replace(marker=""): None for path in given.locks for each in lock.read(path)})
    of = f"{len(packages)} packages of {len(given.locks)} locks"
    services = [["-s", "osv", f"--osv-url={given.osv_url}"]] if given.osv_url else [["-s", "pypi"], ["-s", "osv"]]
    ignored = [f"--ignore-vuln={each}" for each in given.ignore_vuln]
    silent: list[str] = []
    for service in services:
        try:
            # One, before all of them are asked about in vain.
            ask(packages[:1], service)
            report = ask(packages, service, ignored)
        except Silent as why:
            silent.append(f"{service[1]}: {why}")
            continue
        for line in report.vulnerable:
            say(line)
        if report.unknown:
            say(f"not audited: {', '.join(report.unknown)} (unknown to {service[1]})")
        if not report.vulnerable:
            say(f"audited by {service[1]}: {of}, {len(report.unknown)} of them unknown there; none is vulnerable")
        return 1 if report.vulnerable else 2 if report.unknown and given.required else 0
    say(f"not audited: {of}, for no vulnerability service could be asked ({'; '.join(silent)})")
    return 2 if given.required else 0


if __name__ == "__main__":
    sys.exit(main())
