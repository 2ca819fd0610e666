"""The bill of materials: what the image contains, from the lock alone, the same every time, and valid."""

from __future__ import annotations

import json
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

from extender import __version__
from tests.supply_chain.audited import ROOT, ran

pytestmark = pytest.mark.longer
HASH = "a" * 64
LOCK = ROOT / "requirements" / "runtime.txt"
DOCKERFILE = "FROM python:3.11-slim@${BASE_DIGEST}\n"
PROJECT = """
[project]
name = "made"
license = "Apache-2.0"
description = "made for a test"
dependencies = ["alpha>=1", "delta; sys_platform == 'win32'"]
optional-dependencies = {otel = ["beta[fast]"]}
[tool.hatch.version]
path = "version.py"
"""


class Made:
    """A project of three packages, its lock, and where they are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed = folder / "installed"
        self.lock = folder / "lock.txt"
        self.out = folder / "new" / "sbom.json"
        for name, text in {"pyproject.toml": PROJECT, "Dockerfile": DOCKERFILE}.items():
            (folder / name).write_text(text)
        (folder / "version.py").write_text('__version__ = "0.1"\n')
        self.lock.write_text("")
        self.add("alpha", "1.0", "License-Expression: MIT OR Apache-2.0")
        self.add("beta", "2.0", "License: BSD-3-Clause", "Requires-Dist: gamma; extra == 'fast'")
        self.add("gamma", "3.0", "Classifier: License :: OSI Approved :: MIT License", "Requires-Dist: alpha")
        self.lock_line("delta", "4.0", marker=" ; sys_platform == 'win32'")

    def add(self, name: str, version: str, *said: str) -> None:
        folder = self.installed / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        (folder / "METADATA").write_text("\n".join([*head, *said]) + "\n")
        self.lock_line(name, version)

    def lock_line(self, name: str, version: str, marker: str = "") -> None:
        line = f"{name}=={version}{marker} \\\n    --hash=sha256:{HASH}\n"
        self.lock.write_text(self.lock.read_text() + line)

    def bill(self) -> dict[str, Any]:
        ended = self.ran()
        assert ended[0] == 0, ended
        found: dict[str, Any] = json.loads(self.out.read_text())
        return found

    def ran(self) -> tuple[int, str]:
        ended = ran(
            "sbom.py", self.lock, "--installed", self.installed, "--project", self.folder, "--out", self.out
        )  # fmt: skip
        return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def needs(bill: dict[str, Any]) -> dict[str, list[str]]:
    return {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}


def test_it_has_what_the_lock_has_for_the_image_with_licences_hashes_and_who_needs_whom(made: Made) -> None:
    bill = made.bill()
    root = bill["metadata"]["component"]
    assert (bill["bomFormat"], bill["specVersion"], root["purl"]) == ("CycloneDX", "1.6", "pkg:pypi/made@0.1")
    alpha, beta, gamma = bill["components"]
    assert alpha["purl"] == "pkg:pypi/alpha@1.0"
    assert alpha["licenses"] == [{"acknowledgement": "declared", "expression": "MIT OR Apache-2.0"}]
    assert beta["licenses"][0]["license"]["id"] == "BSD-3-Clause"
    assert gamma["licenses"][0]["license"]["name"] == "MIT License"
    [archives] = alpha["externalReferences"]
    assert (archives["type"], archives["hashes"]) == ("distribution", [{"alg": "SHA-256", "content": HASH}])
    assert needs(bill) == {
        "pkg:pypi/made@0.1": ["pkg:pypi/alpha@1.0", "pkg:pypi/beta@2.0"],
        "pkg:pypi/alpha@1.0": [],
        "pkg:pypi/beta@2.0": ["pkg:pypi/gamma@3.0"],
        "pkg:pypi/gamma@3.0": ["pkg:pypi/alpha@1.0"],
    }


def test_of_the_same_lock_it_is_the_same_and_of_another_it_has_another_number(made: Made) -> None:
    first = made.bill()
    text = made.out.read_bytes()
    made.bill()
    assert made.out.read_bytes() == text
    assert "timestamp" not in first["metadata"]
    made.lock.write_text(made.lock.read_text().replace(HASH, "b" * 64))
    assert made.bill()["serialNumber"] != first["serialNumber"]


def test_another_version_installed_than_locked_is_told(made: Made) -> None:
    made.lock.write_text(made.lock.read_text().replace("gamma==3.0", "gamma==3.1"))
    code, told = made.ran()
    assert (code, made.out.exists()) == (1, False)
    assert "gamma is locked as 3.1, and 3.0 in " in told


def test_what_the_lock_lacks_and_what_nothing_needs_are_told(made: Made) -> None:
    made.add("omega", "9.0")
    assert "the lock has omega, which nothing needs" in made.ran()[1]
    made.lock.write_text("".join(made.lock.read_text().partition("gamma")[:1]))
    assert "beta needs gamma, which the lock has not" in made.ran()[1]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("sbom") / "sbom.cdx.json"
    ended = ran("sbom.py", LOCK, "--installed", sysconfig.get_path("purelib"), "--out", out)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_ours_names_escher_and_all_that_it_asks_for_itself(ours: dict[str, Any]) -> None:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    root = ours["metadata"]["component"]
    assert (root["name"], root["version"], root["licenses"][0]["license"]["id"]) == (
        said["name"], __version__, said["license"],
    )  # fmt: skip
    direct = {each.partition("@")[0].rpartition("/")[2] for each in needs(ours)[root["purl"]]}
    assert {"fastapi", "uvloop", "numpy", "opentelemetry-sdk"} <= direct
    assert len(direct) == len(said["dependencies"]) + len(said["optional-dependencies"]["otel"])


def test_each_of_ours_has_a_licence_and_none_comes_by_grpc(ours: dict[str, Any]) -> None:
    assert [each["name"] for each in ours["components"] if not each.get("licenses")] == []
    assert [each["name"] for each in ours["components"] if "grpc" in each["name"]] == []
