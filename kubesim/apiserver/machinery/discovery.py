"""Discovery: the groups, versions and kinds that clients see, and the Kubernetes version.

It depends only on the kinds and the request. The old form has a document for each group and version. The aggregated
form has everything in two answers; kubectl prefers it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from kubesim.kinds import Json, Kind

JSON = "application/json"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of aggregated discovery, by which clients recognise the form."""

MAJOR, MINOR = "1", "36"
GIT_VERSION = f"v{MAJOR}.{MINOR}.3+escher"
"""Clients read it as a semantic version; comparisons ignore the part after `+`."""

VERSION: Json = {
    "major": MAJOR,
    "minor": MINOR,
    "emulationMajor": MAJOR,
    "emulationMinor": MINOR,
    "minCompatibilityMajor": MAJOR,
    "minCompatibilityMinor": str(int(MINOR) - 1),
    "gitVersion": GIT_VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}

_SUBRESOURCE_VERBS = {"binding": ("create",), "eviction": ("create",)}
_SUBRESOURCE_KINDS = {"binding": ("", "", "Binding"), "eviction": ("policy", "v1", "Eviction")}
_VERSION_NAME = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?$")


def answer(kinds: Iterable[Kind], path: str, accept: str) -> Json | None:
    """The document at this path, in the form that `accept` prefers; None without one."""
    path = path.rstrip("/")
    if path == "/version":
        return VERSION
    kinds = tuple(kinds)
    parts = path.split("/")[1:]
    match parts:
        case ["api"] | ["apis"]:
            groups = [group for group in _groups(kinds) if (group == "") == (parts[0] == "api")]
            if _prefers_aggregated(accept):
                return _aggregated(kinds, groups)
            if parts[0] == "api":
                return {"kind": "APIVersions", "versions": _versions(kinds, ""), "serverAddressByClientCIDRs": []}
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(kinds, group) for group in groups]}
        case ["apis", group] if group and group in _groups(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(kinds, group)
        case ["apis", group, version] if group and version in _versions(kinds, group):
            return _resource_list(_of(kinds, group, version))
        case ["api", version] if version in _versions(kinds, ""):
            return _resource_list(_of(kinds, "", version))
    return None


def content_type(path: str, accept: str) -> str:
    """The Content-Type of `answer`."""
    return AGGREGATED if path.rstrip("/") in ("/api", "/apis") and _prefers_aggregated(accept) else JSON


@cache
def _prefers_aggregated(accept: str) -> bool:
    """Whether `accept` prefers the aggregated form (v2: the only one in 1.36) to plain JSON."""
    for each in accept.split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type not in (JSON, "application/*", "*/*"):
            continue
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if "as" not in wanted:
            return False
        if (wanted["as"], wanted.get("g"), wanted.get("v")) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"):
            return True
    return False


def _groups(kinds: Sequence[Kind]) -> list[str]:
    return list(dict.fromkeys(kind.group for kind in kinds))


def _versions(kinds: Sequence[Kind], group: str) -> list[str]:
    """The preferred version first: stable before beta before alpha, then the higher number."""
    return sorted({kind.version for kind in kinds if kind.group == group}, key=_version_rank)


def _version_rank(version: str) -> tuple[int, int, int, str]:
    if (found := _VERSION_NAME.match(version)) is None:
        return (3, 0, 0, version)
    major, stage, minor = found.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version)


def _of(kinds: Sequence[Kind], group: str, version: str) -> list[Kind]:
    return sorted((kind for kind in kinds if (kind.group, kind.version) == (group, version)), key=lambda it: it.plural)


def _group(kinds: Sequence[Kind], group: str) -> Json:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(kinds, group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _singular(kind: Kind) -> str:
    return kind.singular or kind.name.lower()


def _subresources(kind: Kind) -> list[str]:
    """The served subresources; a definition may also name scale, which is not served."""
    return sorted(kind.subresources - {"scale"})


def _subresource_verbs(name: str) -> list[str]:
    return list(_SUBRESOURCE_VERBS.get(name, ("get", "patch", "update")))


def _resource_list(kinds: Sequence[Kind]) -> Json:
    resources: list[Json] = []
    for kind in kinds:
        resource = {
            "name": kind.plural,
            "singularName": _singular(kind),
            "namespaced": kind.namespaced,
            "kind": kind.name,
            "verbs": list(kind.verbs),
        }
        resources.append(resource | _names(kind))
        for name in _subresources(kind):
            group, version, made_of = _SUBRESOURCE_KINDS.get(name, ("", "", kind.name))
            subresource = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": made_of,
                "verbs": _subresource_verbs(name),
            }
            resources.append(subresource | ({"group": group, "version": version} if version else {}))
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": resources}


def _names(kind: Kind) -> Json:
    names: Json = {}
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _aggregated(kinds: Sequence[Kind], groups: Iterable[str]) -> Json:
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": version,
                        "resources": [_aggregated_resource(kind) for kind in _of(kinds, group, version)],
                        "freshness": "Current",
                    }
                    for version in _versions(kinds, group)
                ],
            }
            for group in groups
        ],
    }


def _aggregated_resource(kind: Kind) -> Json:
    resource: Json = {
        "resource": kind.plural,
        "responseKind": _made_of(kind, ""),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": _singular(kind),
        "verbs": list(kind.verbs),
    } | _names(kind)
    if _subresources(kind):
        resource["subresources"] = [_aggregated_subresource(kind, name) for name in _subresources(kind)]
    return resource


def _aggregated_subresource(kind: Kind, name: str) -> Json:
    return {"subresource": name, "responseKind": _made_of(kind, name), "verbs": _subresource_verbs(name)}


def _made_of(kind: Kind, subresource: str) -> Json:
    """The kind in a response. "" as group and version means the group and version of the list."""
    own = (kind.group, kind.version, kind.name) if kind.is_custom else ("", "", kind.name)
    group, version, name = _SUBRESOURCE_KINDS.get(subresource, own)
    return {"group": group, "version": version, "kind": name}
