"""From files: reads kube-scheduler's configuration from a file, or from the ConfigMap of a chart.

Files that kube-scheduler could not read are refused here, so that no check has to consider them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from extender.doctor.facts import Shipped
from extender.doctor.scheduler_file import SchedulerFile
from extender.shipped import crds, places, versions

KIND = "KubeSchedulerConfiguration"


class BadFile(ValueError):
    """A file that cannot be used; `str()` names it, and field and value."""


class _Shape(Struct, rename="camel"):
    pass


class _Managed(_Shape):
    name: str = ""
    ignored_by_scheduler: bool = False


class _Extender(_Shape):
    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: float | None = 0
    enable_h_t_t_p_s: bool = msgspec.field(name="enableHTTPS", default=False)
    tls_config: dict[str, Any] | None = None
    node_cache_capable: bool = False
    ignorable: bool = False
    managed_resources: list[_Managed] | None = None


class _Args(_Shape):
    ignored_resource_groups: list[str] | None = None


class _Plugin(_Shape):
    name: str = ""
    args: _Args | None = None


class _Profile(_Shape):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugin_config: list[_Plugin] | None = None


class _Election(_Shape):
    leader_elect: bool | None = None
    resource_namespace: str = ""
    resource_name: str = ""


class _Client(_Shape):
    qps: float = 0
    burst: float = 0


class _Configuration(_Shape):
    """The fields that checks read, as in kube-scheduler's API."""

    api_version: str = ""
    percentage_of_nodes_to_score: int | None = None
    pod_max_backoff_seconds: float | None = None
    profiles: list[_Profile] | None = None
    extenders: list[_Extender] | None = None
    leader_election: _Election | None = None
    client_connection: _Client | None = None


def scheduler_files(path: Path) -> list[SchedulerFile]:
    """The configurations in this file, or in the ConfigMaps in it. Raises BadFile."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found = list(_configurations(str(path), text))
    if not found:
        raise BadFile(f"{path}: it has no {KIND} and no ConfigMap with one")
    return found


def _configurations(name: str, text: str) -> Iterator[SchedulerFile]:
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise BadFile(f"{name}: it is not YAML: {error}") from error
    for document in documents:
        if not isinstance(document, dict):
            continue
        if document.get("kind") == KIND:
            try:
                msgspec.convert(document, _Configuration)
            except msgspec.ValidationError as error:
                what, _, where = str(error).partition(" - at ")
                field = where.strip("`").removeprefix("$.") or "the document"
                raise BadFile(f"{name}: {field}: {what[:1].lower()}{what[1:]}") from error
            yield SchedulerFile(name, document)
        elif document.get("kind") == "ConfigMap":
            for key, content in (document.get("data") or {}).items():
                if isinstance(content, str) and KIND in content:
                    yield from _configurations(f"{name} ({key})", content)


def shipped(version: str) -> Shipped:
    """What this version expects: Kubernetes versions, definitions, and the marking policy."""
    policies = crds.documents(places.shipped("deploy") / "policies" / "mark-pods.yaml")
    mark = next(each for each in policies if each["kind"] == "MutatingAdmissionPolicy")
    minors = sorted(int(each.minor.removeprefix("1.")) for each in versions.SUPPORTED)
    definitions = tuple(crds.shipped_definitions())
    return Shipped(version=version, minors=tuple(minors), definitions=definitions, mark_policy=mark)
