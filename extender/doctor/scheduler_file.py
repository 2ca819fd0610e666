"""A KubeSchedulerConfiguration as kube-scheduler reads it: profiles, extenders, defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from extender.core.names import DOMAIN, in_domain

Json = Mapping[str, Any]

OUR_PATH = "/scheduler"
DEFAULT_PROFILE = "default-scheduler"
VERBS = ("filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb")
_DEFAULT_TIME_OUT = "5s"
_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_NO_ADDRESS = urlsplit("")


def seconds_in(duration: object) -> float | None:
    """Seconds of a duration in Go's spelling, such as 1m30s; None if it is none."""
    if not isinstance(duration, str) or _DURATION.sub("", duration) or not duration:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(duration))


def on_this_machine(host: str) -> bool:
    """Whether the host is a loopback address, or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Entry:
    """One of `extenders`. `where`: the file and the field."""

    where: str
    said: Json

    @property
    def url(self) -> SplitResult:
        try:
            return urlsplit(str(self.said.get("urlPrefix") or ""))
        except ValueError:
            return _NO_ADDRESS

    @property
    def verbs(self) -> dict[str, str]:
        return {field: str(self.said[field]) for field in VERBS if self.said.get(field)}

    @property
    def managed(self) -> dict[str, Json]:
        """managedResources by name."""
        return {str(each.get("name")): each for each in self.said.get("managedResources") or ()}

    @property
    def of_every_pod(self) -> bool:
        """Whether it is called for every pod, not only for pods with one of its resources."""
        return not self.managed

    @property
    def time_out(self) -> object:
        """As it is written."""
        return self.said.get("httpTimeout", _DEFAULT_TIME_OUT)

    @property
    def over_tls(self) -> bool:
        """Only the scheme decides; `enableHTTPS` only sets how the other side is verified."""
        return self.url.scheme == "https"

    @property
    def tls(self) -> Json:
        found: Json = self.said.get("tlsConfig") or {}
        return found

    def calls(self, service: str) -> bool:
        """Whether it seems to be meant for Escher, at that address or anywhere."""
        return (
            "escher" in self.url.netloc
            or self.url.path.rstrip("/") == OUR_PATH
            or any(in_domain(name) for name in self.managed)
            or (self.url.netloc != "" and self.url.netloc == urlsplit(service).netloc)
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """One of `profiles`. `where`: the file and the field."""

    where: str
    name: str
    said: Json
    sampling: int
    """The percentageOfNodesToScore in force for it; 0: adaptive."""

    @property
    def ignores_our_domain(self) -> bool:
        """Whether the built-in fit ignores nodes' ephemeral resources."""
        for plugin in self.said.get("pluginConfig") or ():
            if plugin.get("name") == "NodeResourcesFit":
                return DOMAIN in ((plugin.get("args") or {}).get("ignoredResourceGroups") or ())
        return False


@dataclass(frozen=True, slots=True)
class SchedulerFile:
    """`name`: the file's name for people."""

    name: str
    document: Json

    @property
    def profiles(self) -> dict[str, Profile]:
        """By schedulerName; without profiles, there is the default one."""
        everywhere = self.document.get("percentageOfNodesToScore") or 0
        found = {}
        for at, said in enumerate(self.document.get("profiles") or [{}]):
            name = str(said.get("schedulerName") or DEFAULT_PROFILE)
            sampling = said.get("percentageOfNodesToScore")
            where = f"{self.name}: profiles[{at}] ({name})"
            found[name] = Profile(where, name, said, everywhere if sampling is None else sampling)
        return found

    @property
    def entries(self) -> list[Entry]:
        said = self.document.get("extenders") or ()
        return [Entry(f"{self.name}: extenders[{at}]", each) for at, each in enumerate(said)]

    @property
    def lease(self) -> str | None:
        """Namespace and name of the Lease that its replicas compete for; None: no election."""
        said = self.document.get("leaderElection") or {}
        if not said.get("leaderElect", True):
            return None
        return f"{said.get('resourceNamespace') or 'kube-system'}/{said.get('resourceName') or 'kube-scheduler'}"
