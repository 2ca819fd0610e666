"""Writes what the image contains, as a bill of materials (CycloneDX 1.6, JSON): this package, and what its lock has for
Linux and the image's Python.

Names, versions and hashes are the lock's; licences and who needs whom are what the packages say of themselves where
they are installed. Asks nobody, and has neither a time nor a number drawn in it: of the same lock it is the same, byte
for byte. It is checked against CycloneDX's schema before it is written.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from uuid import UUID, uuid5

import lock
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
IMAGE = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}
"""What markers are about, in the image. Of its machine nothing is said: there are several."""
EXTRAS = ("otel",)
"""Ours, that the image has."""
_NAMESPACE = UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""RFC 9562's for URLs; a purl is one."""
_DECLARED = LicenseAcknowledgement.DECLARED
_LONGEST = 100
"""Characters: some put the whole text where a name belongs."""


def environment(dockerfile: str) -> dict[str, str]:
    """What markers are asked with."""
    found = re.search(r"^FROM python:(3\.\d+)-", dockerfile, re.MULTILINE)
    if found is None:
        raise SystemExit("Dockerfile: no line says FROM python:3.x-...; .ci/sbom.py reads the image's Python there")
    return {
        **IMAGE,
        "python_version": found[1],
        "python_full_version": f"{found[1]}.0",
        "implementation_version": found[1],
    }


def holds(marker: Marker | None, where: dict[str, str], extra: str = "") -> bool:
    return marker is None or marker.evaluate({**where, "extra": extra})


def licences(package: Distribution) -> list[License]:
    """As the package declares them: by SPDX's names, where it uses those."""
    said, factory = package.metadata, LicenseFactory()
    kinds = [each.rpartition(" :: ")[2] for each in said.get_all("Classifier") or () if each.startswith("License ::")]
    names = sorted({*kinds} - {"OSI Approved"})
    text = (said.get("License") or "").strip().partition("\n")[0]
    if (one := said.get("License-Expression") or ("" if len(text) > _LONGEST else text)) or len(names) == 1:
        return [factory.make_from_string(one or names[0], license_acknowledgement=_DECLARED)]
    return [factory.make_with_name(each, acknowledgement=_DECLARED) for each in names]


class Bill:
    """`installed`: where the packages of the lock are installed, to be asked for their licences."""

    def __init__(self, locked: Iterable[lock.Locked], installed: Path, where: dict[str, str]) -> None:
        self.where = where
        self.locked = {canonicalize_name(each.name): each for each in locked if self._here(each)}
        known = {canonicalize_name(each.metadata["Name"]): each for each in distributions(path=[str(installed)])}
        for name, each in self.locked.items():
            there = known[name].version if name in known else "not installed"
            if there != each.version:
                raise SystemExit(
                    f"{name} is locked as {each.version}, and {there} in {installed}: install the lock there"
                )
        self.known = known

    def _here(self, each: lock.Locked) -> bool:
        return holds(Marker(each.marker) if each.marker else None, self.where)

    def bom(self, project: dict[str, object], version: str) -> Bom:
        root = self._root(project, version)
        components = {name: self._component(name, each) for name, each in self.locked.items()}
        bom = Bom(components=components.values(), serial_number=uuid5(_NAMESPACE, self._identity(root)))
        bom.metadata.component = root
        bom.metadata.tools.components.add(this_component())
        bom.metadata.timestamp = None
        wanted = [
            *project["dependencies"],
            *(each for extra in EXTRAS for each in project["optional-dependencies"][extra]),
        ]
        needs = self._needs([Requirement(each) for each in wanted])
        bom.register_dependency(root, [components[each] for each in sorted(needs.pop(""))])
        for name, component in components.items():
            bom.register_dependency(component, [components[each] for each in sorted(needs.get(name, ()))])
        if strays := sorted(set(components) - set(needs)):
            raise SystemExit(
                f"the lock has {', '.join(strays)}, which nothing needs; write the lock anew with `make lock`"
            )
        return bom

    def _root(self, project: dict[str, object], version: str) -> Component:
        purl = PackageURL("pypi", name=str(project["name"]), version=version)
        licence = LicenseFactory().make_from_string(str(project["license"]))
        return Component(
            type=ComponentType.APPLICATION,
            name=str(project["name"]),
            version=version,
            purl=purl,
            bom_ref=str(purl),
            licenses=[licence],
            description=str(project["description"]),
        )

    def _component(self, name: str, each: lock.Locked) -> Component:
        purl = PackageURL("pypi", name=name, version=each.version)
        # Which of its archives is installed depends on the machine.
        archives = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(purl)),
            comment="the archives that the lock accepts",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=known) for known in each.hashes],
        )
        return Component(
            type=ComponentType.LIBRARY,
            name=name,
            version=each.version,
            purl=purl,
            bom_ref=str(purl),
            licenses=licences(self.known[name]),
            external_references=[archives],
        )

    def _needs(self, ours: list[Requirement]) -> dict[str, set[str]]:
        """Names of what each needs directly; of us under the empty name. Only what something needs is in it."""
        needs: dict[str, set[str]] = defaultdict(set)
        seen: set[tuple[str, str]] = set()
        todo = [("", each) for each in ours if holds(each.marker, self.where)]
        while todo:
            who, wanted = todo.pop()
            name = canonicalize_name(wanted.name)
            if name not in self.locked:
                raise SystemExit(
                    f"{who or 'this package'} needs {name}, which the lock has not: write it anew with `make lock`"
                )
            needs[who].add(name)
            needs[name]
            for extra in ("", *wanted.extras):
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    further = map(Requirement, self.known[name].requires or ())
                    todo += [(name, each) for each in further if holds(each.marker, self.where, extra)]
        return needs

    def _identity(self, root: Component) -> str:
        return "\n".join(
            [str(root.purl), *sorted(f"{each.name}=={each.version} {each.hashes}" for each in self.locked.values())]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path)
    parser.add_argument(
        "--installed", type=Path, required=True, help="the folder site-packages that has what is locked"
    )
    parser.add_argument("--project", type=Path, default=ROOT, help="the folder of pyproject.toml and Dockerfile")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    project = tomllib.loads((given.project / "pyproject.toml").read_text())
    versions = (given.project / project["tool"]["hatch"]["version"]["path"]).read_text()
    version = re.search(r'^__version__ = "([^"]+)"', versions, re.MULTILINE)
    if version is None:
        raise SystemExit(f"{project['tool']['hatch']['version']['path']} says no __version__")
    where = environment((given.project / "Dockerfile").read_text())
    bill = Bill(lock.read(given.lock), given.installed, where)
    text = JsonV1Dot6(bill.bom(project["project"], version[1])).output_as_string(indent=2) + "\n"
    if (problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        raise SystemExit(f"the bill of materials is not as CycloneDX has it: {problem}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text)
    sys.stdout.write(f"{given.out}: {len(bill.locked)} packages of {given.lock}, valid as CycloneDX 1.6\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
