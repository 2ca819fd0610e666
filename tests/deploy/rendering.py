"""Rendering: deploy/kustomize is what the chart comes to, in parts.

    python -m tests.deploy.rendering

copies into the chart what it has from elsewhere, tells its schema which settings there are, and writes
deploy/kustomize/*/objects.yaml anew. Tests compare.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from extender.settings.settings import Settings
from extender.settings.settings_renamed import RENAMED
from tests.deploy.manifests import CHART, KUSTOMIZE, NAME, NAMESPACE, OF_THE_CHART, Object, copies, objects
from tests.deploy.tools import tool

SCHEMA = CHART / "values.schema.json"
KUBERNETES = "1.36.0"
REGISTRY = "registry.invalid"
"""In place of the user's, whom kustomization.yaml tells where to say his."""
_OF_HELM = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_HEAD = "# What the chart comes to: `make manifests` writes this, and whoever edits it here edits it in vain.\n"


def template(*options: str, kubernetes: str = KUBERNETES) -> str:
    """What the chart comes to with these options of helm. Raises Refused with what helm said."""
    command = [tool("helm"), "template", NAME, str(CHART), "--namespace", NAMESPACE, "--kube-version", kubernetes]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(ended.stderr)
    return ended.stdout


class Refused(Exception):
    """helm renders nothing; `str` is what it says."""


def rendered(*options: str, kubernetes: str = KUBERNETES) -> list[Object]:
    """The objects, with what has no default given."""
    images = ("--set", f"image.registry={REGISTRY},scheduler.image.registry={REGISTRY}")
    return objects(template(*images, *options, kubernetes=kubernetes))


def parts() -> dict[str, list[Object]]:
    """What stands in deploy/kustomize, by the folder that it is for."""
    plain = _by_name(rendered("--set", "certificates.source=secrets"))
    certified = _by_name(rendered("--set", "certificates.source=certManager"))
    switches = [f"monitoring.{each}.enabled=true" for each in ("serviceMonitor", "prometheusRule", "dashboard")]
    watched = _by_name(rendered("--set", ",".join(["certificates.source=secrets", *switches])))
    namespace: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    made: dict[str, list[Object]] = {
        "base": [namespace],
        "components/second-scheduler": [],
        "components/cert-manager": [each for name, each in certified.items() if name not in plain],
        "components/monitoring": [each for name, each in watched.items() if name not in plain],
        # That of the base has gone with it.
        "cleanup": [namespace],
    }
    for each in plain.values():
        made[_part(each)].append(each)
    return {folder: [_without_helm(each) for each in found] for folder, found in made.items()}


def known_settings() -> set[str]:
    """The settings that a value may name, by old names too."""
    return ({*Settings.model_fields} | RENAMED.keys()) - OF_THE_CHART


def _by_name(found: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def _part(each: Object) -> str:
    metadata = each["metadata"]
    if "helm.sh/hook" in metadata.get("annotations", {}):
        return "cleanup"
    return "components/second-scheduler" if metadata["name"].startswith(f"{NAME}-scheduler") else "base"


def _without_helm(each: Object) -> Object:
    """The same, as nobody installs it by helm."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: cleaned(below) for key, below in value.items() if not _is_helms(key)}
            return {key: below for key, below in kept.items() if (key, below) != ("annotations", {})}
        return [cleaned(below) for below in value] if isinstance(value, list) else value

    cleaned_object: Object = cleaned(each)
    return cleaned_object


def _is_helms(key: str) -> bool:
    return key in _OF_HELM or key.startswith("helm.sh/")


def written(found: list[Object]) -> str:
    """The text of a file with these objects."""
    return _HEAD + yaml.dump_all(found, Dumper=_Readable, sort_keys=False, width=100, explicit_start=True)


class _Readable(yaml.SafeDumper):
    """Texts of several lines as such, and lists indented as everywhere here."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def file_of(folder: str) -> Path:
    return KUSTOMIZE / folder / "objects.yaml"


def main() -> None:
    for copy, source in copies().items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    schema = json.loads(SCHEMA.read_text())
    schema["properties"]["settings"]["propertyNames"]["enum"] = sorted(known_settings())
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
    for folder, found in parts().items():
        file_of(folder).parent.mkdir(parents=True, exist_ok=True)
        file_of(folder).write_text(written(found))


if __name__ == "__main__":
    main()
