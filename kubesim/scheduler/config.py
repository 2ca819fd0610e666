"""Configuration: reads a KubeSchedulerConfiguration, with kube-scheduler's defaults and errors.

It ignores unknown parts (leader election, client limits, other plugins' arguments), because the real scheduler gets
these files too and judges them itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_USUAL_TIMEOUT = 5.0


class BadConfig(ValueError):
    """kube-scheduler would not start with this file. `str()` gives the reason."""


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    """The `schedulerName` of its pods."""
    percentage: int | None = None
    """percentageOfNodesToScore of this profile; None: the file's value applies."""
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    """An extender. An empty verb means that it does not support that call."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 0
    node_cache_capable: bool = False
    ignorable: bool = False
    http_timeout: float = _USUAL_TIMEOUT
    managed_resources: frozenset[str] = frozenset()
    """If empty, every pod of this scheduler is sent."""
    enable_https: bool = False
    tls: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    profiles: tuple[Profile, ...] = (Profile("default-scheduler"),)
    extenders: tuple[ExtenderConfig, ...] = ()
    """In call order: ignorable extenders last."""
    percentage: int = 0
    """0 means adaptive."""
    initial_backoff: float = 1.0
    max_backoff: float = 10.0

    @classmethod
    def load(cls, path: Path) -> SchedulerConfig:
        """Reads a YAML or JSON file. Raises BadConfig, OSError."""
        try:
            return cls.read(yaml.safe_load(path.read_text()))
        except yaml.YAMLError as error:
            raise BadConfig(f"{path} is not YAML: {error}") from error

    @classmethod
    def read(cls, document: Any) -> SchedulerConfig:
        """Reads a parsed file. Raises BadConfig."""
        if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
            raise BadConfig("this is no KubeSchedulerConfiguration")
        read = [_extender(each) for each in document.get("extenders") or ()]
        extenders = sorted((extender for extender, _ in read), key=lambda extender: extender.ignorable)
        if sum(1 for extender in extenders if extender.bind_verb) > 1:
            raise BadConfig("extenders: found more than one extender implementing bind")
        profiles = _profiles(document.get("profiles") or [{}])
        hidden = [name for _, names in read for name in names]
        if hidden:
            # As in kube-scheduler, resources that extenders hide replace those that the profile's arguments hide.
            profiles = [replace(profile, ignored_resources=frozenset(hidden)) for profile in profiles]
        return cls(
            tuple(profiles),
            tuple(extenders),
            _number(document, "percentageOfNodesToScore", 0),
            float(_number(document, "podInitialBackoffSeconds", 1)),
            float(_number(document, "podMaxBackoffSeconds", 10)),
        )

    def profile(self, scheduler_name: str) -> Profile | None:
        return next((profile for profile in self.profiles if profile.name == scheduler_name), None)


def seconds(duration: str) -> float:
    """Seconds of a duration in Go's format: `5s`, `1m30s`, `500ms`. Raises BadConfig."""
    if duration == "0":
        return 0.0
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise BadConfig(f'time: invalid duration "{duration}"')
    return float(sum(float(number) * _SECONDS[unit] for number, unit in parts))


def _profiles(written: list[dict[str, Any]]) -> list[Profile]:
    profiles: list[Profile] = []
    for each in written:
        name = each.get("schedulerName") or ("default-scheduler" if len(written) == 1 else "")
        if not name:
            raise BadConfig(f"profiles[{len(profiles)}].schedulerName: Required value")
        if any(name == other.name for other in profiles):
            raise BadConfig(f'profiles[{len(profiles)}].schedulerName: Duplicate value: "{name}"')
        fit: dict[str, Any] = {}
        for plugin in each.get("pluginConfig") or ():
            if plugin.get("name") == "NodeResourcesFit":
                fit = plugin.get("args") or {}
        percentage = each.get("percentageOfNodesToScore")
        profiles.append(
            Profile(
                name,
                None if percentage is None else _number(each, "percentageOfNodesToScore", 0),
                frozenset(fit.get("ignoredResources") or ()),
                frozenset(fit.get("ignoredResourceGroups") or ()),
            )
        )
    return profiles


def _extender(written: dict[str, Any]) -> tuple[ExtenderConfig, list[str]]:
    """The extender, and the resources that it hides from the scheduler."""
    managed = written.get("managedResources") or []
    extender = ExtenderConfig(
        url_prefix=str(written.get("urlPrefix") or ""),
        filter_verb=written.get("filterVerb") or "",
        prioritize_verb=written.get("prioritizeVerb") or "",
        bind_verb=written.get("bindVerb") or "",
        preempt_verb=written.get("preemptVerb") or "",
        weight=_number(written, "weight", 0),
        node_cache_capable=bool(written.get("nodeCacheCapable")),
        ignorable=bool(written.get("ignorable")),
        http_timeout=seconds(str(written.get("httpTimeout") or "0")) or _USUAL_TIMEOUT,
        managed_resources=frozenset(each["name"] for each in managed),
        enable_https=bool(written.get("enableHTTPS")),
        tls=written.get("tlsConfig") or {},
    )
    if extender.prioritize_verb and extender.weight <= 0:
        raise BadConfig(
            f"extenders: {extender.url_prefix}: must have a positive weight applied to it, for it has a prioritizeVerb"
        )
    return extender, [each["name"] for each in managed if each.get("ignoredByScheduler")]


def _number(written: Mapping[str, Any], key: str, default: int) -> int:
    value = written.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadConfig(f"{key}: {value!r} is no whole number")
    return value
