"""Settings: defines the service's settings, with defaults and limits.

They come from a file (`escher serve --config FILE`, YAML) or the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extender.core.safety_switches import Switches
from extender.settings.settings_isolation import IsolationSettings
from extender.settings.settings_renamed import BothNames, by_new_names

OWN_NAMESPACE = "escher-system"
"""The service's own namespace, if neither the settings nor a pod give it."""


OptionalKind = Literal[
    "daemonsets", "escherpolicies", "jobs", "namespaces", "poddisruptionbudgets", "podgroups", "transactionintents"
]


class BadSettings(ValueError):
    """An unusable configuration; `str()` names each field, its value and what is accepted."""


class Settings(BaseModel):
    """All settings. Unknown keys are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 chooses a free one")
    kubeconfig: Path | None = Field(None, description="default: the pod's service account, else the user's kubeconfig")
    context: str | None = Field(None, description="the context of the kubeconfig to use; default: its current one")
    tls_certificate: Path | None = Field(None, description="certificate chain (PEM) to serve https with")
    tls_key: Path | None = Field(None, description="its private key (PEM)")
    tls_client_ca: Path | None = Field(
        None, description="kube-scheduler must show a certificate that one of these signed (PEM); others may"
    )
    tls_scheduler_names: tuple[str, ...] = Field(
        ("system:kube-scheduler",),
        min_length=1,
        description="common names in certificates of those who may call the verbs; only with tls_client_ca",
    )
    insecure: bool = Field(
        False, description="listen where other machines reach it though not everybody has to show who they are"
    )
    authorization: Literal["none", "kubernetes"] = Field(
        "none",
        description="kubernetes: callers of /v1 show a token, and RBAC says what they may do; none: they may do all",
    )
    token_audiences: tuple[str, ...] = Field(
        (), description="tokens are good that were made for one of these; none: for the API server itself"
    )
    authorization_cache_seconds: float = Field(
        10.0, ge=0.0, le=300.0, description="what the API server said of a token or of what it may do holds for so long"
    )
    api_qps: float = Field(
        200.0, gt=0.0, le=1_000_000.0, description="calls of /v1 by one client, on average; see api_burst"
    )
    api_burst: int = Field(1000, ge=1, le=1_000_000, description="and how many of them at once, at most")
    api_queue_seconds: float = Field(
        15.0,
        gt=0.0,
        le=60.0,
        description="a call of /v1 that could not be begun within so long is refused: kube-scheduler's go first",
    )
    api_memory_limit_share: float = Field(
        0.9,
        ge=0.0,
        le=1.0,
        description="calls of /v1 are refused while more than so much of the memory that this container may have is in "
        "use (0: they are not)",
    )
    scheduler_http_timeout_seconds: float = Field(
        60.0, gt=1.0, le=600.0, description="the extender's httpTimeout in kube-scheduler's configuration"
    )
    scheduler_names: tuple[str, ...] = Field(
        ("escher", "escher-ledger"),
        min_length=1,
        description="schedulerName of pods that are ours; those of others are never touched, whatever labels they bear",
    )
    reserve_at_filter: bool = Field(
        True, description="hold ephemeral resources, and a gang's room, from filter on; otherwise claim them at bind"
    )
    backfill_after_skips: int = Field(
        8, ge=0, le=10_000, description="how often the gang first in turn is passed before room is saved for it"
    )
    backfill_after_seconds: float = Field(
        60.0, ge=0.0, le=86_400.0, description="how long the gang first in turn waits before room is saved for it"
    )
    observe_only: bool = Field(
        False, description="decide and explain, but evict, preempt, save and refuse nothing (changeable while it runs)"
    )
    evict_partial_gangs: bool = Field(
        True,
        description="evict members of a gang that is known to be bound in part and could not be completed (changeable)",
    )
    gang_preemption: bool = Field(
        True, description="evict whole gangs and pods of lower priority where a gang then has room (changeable)"
    )
    backfill_reservation: bool = Field(
        True, description="keep what comes free for the gang whose turn it is (changeable); off: no preemption either"
    )
    preempt_foreign_pods: bool = Field(
        False, description="take pods of schedulers that are not ours as victims of preemption too"
    )
    preempts_despite_budgets: Literal["last-resort", "never"] = Field(
        "last-resort",
        description="whether pods that a disruption budget protects leave for higher priority, where there is no room "
        "otherwise (last-resort, as with kube-scheduler), or never",
    )
    preempts_for_policies: bool = Field(
        False,
        description="evict pods of lower priority also for a pod of no gang that policies alone keep from their place",
    )
    evictions_per_second: float = Field(5.0, gt=0.0, le=1000.0, description="how fast pods are evicted, on average")
    backfill_max_share: float = Field(
        0.25, gt=0.0, le=1.0, description="at most so much of the cluster is kept idle for the gang whose turn it is"
    )
    backfill_max_seconds: float = Field(
        600.0, gt=0.0, le=86_400.0, description="and for at most so many seconds, if nothing more comes free meanwhile"
    )
    max_ephemeral_resources_per_node: int = Field(
        1500,
        ge=1,
        le=3000,
        description="how many ephemeral resources a node may have: a Node larger than 1.5 MiB can be stored no more",
    )
    cross_namespace_units: Literal["refuse", "allow"] = Field(
        "refuse",
        description="whether pods may ask for ephemeral resources of namespaces that do not export them to theirs",
    )
    long_running_seconds: float = Field(
        86_400.0,
        ge=60.0,
        description="no room is kept free for a gang that would need a pod to end which has run for so long, unless it "
        "is a Job's or may be preempted for the gang",
    )
    expected_members_limit: int = Field(
        256,
        ge=0,
        le=100_000,
        description="how many places are held in a namespace for members of gangs that their Jobs have yet to create",
    )
    preemptions_per_gang_and_hour: int = Field(
        4, ge=0, le=1000, description="how often others are evicted for one gang in vain within an hour, at most"
    )
    preempted_pods_per_gang_and_hour: int = Field(
        1000, ge=0, le=1_000_000, description="how many pods are evicted for one gang in vain within an hour, at most"
    )
    stale_after_seconds: float = Field(
        300.0,
        ge=0.0,
        le=86_400.0,
        description="nothing new is planned once no watch has said anything for so long (0: it is all the same)",
    )
    without: tuple[OptionalKind, ...] = Field(
        (), description="kinds that are not read, nor waited for at a start; those that narrow what may be done do not"
    )
    isolation: IsolationSettings = Field(
        IsolationSettings(),
        description="by namespace: how much it may have at once, and which nodes and names it may touch (changeable)",
    )
    policies: tuple[str, ...] = Field(
        (),
        description="further policies, asked after those that come with Escher: module:Class, or the name of an entry "
        "point of the group escher.policies",
    )
    policies_folder: Path | None = Field(None, description="a folder that has modules named in `policies`")
    max_body_bytes: int = Field(256 * 2**20, ge=2**20, description="largest body that a scheduler verb accepts")
    max_inflight_body_bytes: int | None = Field(
        None,
        ge=2**20,
        description="all bodies that are read or worked on at the same time; default: twice max_body_bytes",
    )
    connections_limit: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="connections that may be open; fewer, where this process may not open as many files",
    )
    streams_per_client: int = Field(
        16, ge=1, le=1_000_000, description="streams of events that one client may hold open at the same time"
    )
    streams_per_namespace: int = Field(
        128, ge=1, le=1_000_000, description="streams that may follow one namespace; as many may follow all namespaces"
    )
    streams_limit: int = Field(512, ge=1, le=1_000_000, description="streams of events that may be open, of everybody")
    leader_election: bool = Field(
        False, description="one of several replicas, of which one at a time decides; the others wait to take over"
    )
    lease_name: str = Field(
        "escher",
        max_length=200,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="the Lease that says which replica decides",
    )
    lease_namespace: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="the namespace of the Lease and of leader_service; default: the pod's",
    )
    service_namespace: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="where the service stores what it alone may write (TransactionIntents); default: lease_namespace, "
        "else the pod's, else escher-system",
    )
    lease_seconds: int = Field(
        4, ge=2, le=60, description="how long the Lease holds: for so long nobody decides after the leader was killed"
    )
    leader_service: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="a Service without selector that is to lead to the leader; default: nothing is done about it",
    )
    leader_service_port: str = Field(
        "", max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", description="the name of that Service's port"
    )
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$")
    log_format: str = Field(
        "text", pattern="^(text|json)$", description="how a line of the log is written: text, or one JSON object"
    )
    tracing: Literal["none", "otlp"] = Field(
        "none",
        description="otlp: spans of calls, writes and gangs are sent where the environment's OTEL_* say (needs the "
        "extra otel)",
    )

    @property
    def own_namespace(self) -> str:
        """The namespace for objects that only the service may write."""
        return self.service_namespace or self.lease_namespace or OWN_NAMESPACE


SWITCHES = ("observe_only", "evict_partial_gangs", "gang_preemption", "backfill_reservation")
CHANGEABLE = (*SWITCHES, "isolation")
"""A change of these in the file takes effect at run time; the others need a restart."""


def switches_in(settings: Settings) -> Switches:
    """The safety switch's values in the settings."""
    return Switches(**{name: getattr(settings, name) for name in SWITCHES})


def load_settings(file: Path | None, heard: Callable[[str], None] = lambda said: None, **given: Any) -> Settings:
    """The settings of the file, overridden by the given ones that are not None.

    `heard` is called with a text for each old name in the file. Raises BadSettings.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            read = yaml.safe_load(file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadSettings(f"{file}: {error}") from error
        if read is not None and not isinstance(read, dict):
            raise BadSettings(f"{file}: a mapping of settings is expected, such as `port: 8080`")
        try:
            values = by_new_names(read or {}, heard)
        except BothNames as error:
            raise BadSettings(f"{file}: {error}") from error
    values |= {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors()]
        raise BadSettings("; ".join(lines)) from error
    _check_tls(settings)
    _check_reach(settings)
    _check_bodies(settings)
    _check_election(settings)
    return settings


def _check_election(settings: Settings) -> None:
    """Requires `leader_election` if `leader_service` is set. Raises BadSettings."""
    if settings.leader_service is not None and not settings.leader_election:
        raise BadSettings(
            f"leader_service = {settings.leader_service!r}: there is no leader without `leader_election: true`; "
            "set that, or leave this out"
        )


def _check_bodies(settings: Settings) -> None:
    """Requires room for the largest body in `max_inflight_body_bytes`. Raises BadSettings."""
    all_bodies, one = settings.max_inflight_body_bytes, settings.max_body_bytes
    if all_bodies is not None and all_bodies < one:
        raise BadSettings(
            f"max_inflight_body_bytes = {all_bodies}: it is less than max_body_bytes = {one}, "
            "so that the largest body could never be read; give at least as much"
        )


def _check_tls(settings: Settings) -> None:
    """Requires certificate and key together, and both for `tls_client_ca`. Raises BadSettings."""
    certificate, key, authority = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    if (certificate is None) != (key is None):
        given = f"tls_certificate = {certificate}" if key is None else f"tls_key = {key}"
        missing = "tls_key" if key is None else "tls_certificate"
        raise BadSettings(f"{given}, and there is no {missing}: they go together, give both or neither")
    if authority is not None and certificate is None:
        raise BadSettings(
            f"tls_client_ca = {authority}: certificates of clients can be asked for over https only; "
            "give tls_certificate and tls_key too, or leave it out"
        )


def _check_reach(settings: Settings) -> None:
    """Raises BadSettings for a port that others reach without certificate, unless `insecure`."""
    if settings.insecure or settings.tls_client_ca is not None or _is_loopback(settings.host):
        return
    raise BadSettings(
        f"host = {settings.host!r}: other machines reach it, and whoever does could call kube-scheduler's verbs; give "
        "tls_certificate, tls_key and tls_client_ca, or, where the network lets nobody else through, insecure: true "
        "(--insecure)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
