"""Checks of each entry of `extenders`; scheduler-config/escher.yaml explains each line."""

from __future__ import annotations

from collections.abc import Iterator

from extender.core.gang_ask import DEFAULT_TIMEOUT
from extender.core.names import MANAGED
from extender.doctor.facts import Facts, Part
from extender.doctor.findings import Check, Found, Severity
from extender.doctor.scheduler_file import OUR_PATH, on_this_machine, seconds_in

_SERVED = {
    "filterVerb": ("filter-only", "filter"),
    "prioritizeVerb": ("prioritize",),
    "bindVerb": ("bind",),
    "preemptVerb": ("preempt",),
}
"""The verbs that the service answers, by the field that names them."""


def _no_duration(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if seconds_in(entry.time_out) is None:
            wrong = f"httpTimeout is {entry.time_out!r}, which is not a duration: kube-scheduler rejects the file"
            yield Found(entry.where, wrong, f"Write it with its unit: httpTimeout: {_wanted(facts)}.")


def _too_short(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        seconds = seconds_in(entry.time_out)
        if seconds is not None and seconds < DEFAULT_TIMEOUT:
            said = "" if "httpTimeout" in entry.said else ", the default"
            wrong = (
                f"httpTimeout is {entry.time_out}{said}: kube-scheduler abandons calls that wait for a gang, which may "
                f"take {DEFAULT_TIMEOUT:g} s"
            )
            yield Found(entry.where, wrong, f"Set httpTimeout: {_wanted(facts)}.")


def _another_time_out(facts: Facts) -> Iterator[Found]:
    expected = facts.settings.scheduler_http_timeout_seconds
    for entry in facts.entries:
        seconds = seconds_in(entry.time_out)
        if seconds is not None and seconds >= DEFAULT_TIMEOUT and seconds != expected:
            wrong = (
                f"httpTimeout is {entry.time_out}, but the service assumes {expected:g} s "
                "(scheduler_http_timeout_seconds)"
            )
            mend = f"Set httpTimeout: {_wanted(facts)}, or scheduler_http_timeout_seconds: {seconds:g} in its settings."
            yield Found(entry.where, wrong, mend)


def _wanted(facts: Facts) -> str:
    return f"{max(facts.settings.scheduler_http_timeout_seconds, DEFAULT_TIMEOUT):g}s"


def _elsewhere(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if entry.url.scheme not in ("http", "https") or entry.url.path.rstrip("/") != OUR_PATH:
            wrong = f"urlPrefix is {entry.said.get('urlPrefix')!r}; the service answers verbs only under {OUR_PATH}"
            yield Found(entry.where, wrong, f"End it with {OUR_PATH}: http://127.0.0.1:8080{OUR_PATH}.")


def _unknown_verb(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        for name, verb in entry.verbs.items():
            if verb not in _SERVED[name]:
                wrong = f"{name} is {verb!r}, which the service does not know: it answers each call with 404"
                yield Found(entry.where, wrong, f"Set {name}: {_SERVED[name][0]}.")


def _unfit_filter(facts: Facts) -> Iterator[Found]:
    """filter-only is for an entry without bindVerb, filter for one with all verbs."""
    for entry in facts.entries:
        verb, binds = entry.verbs.get("filterVerb"), "bindVerb" in entry.verbs
        if verb == "filter" and entry.of_every_pod and not binds:
            wrong = "filterVerb is filter in an entry that does not bind: unmarked gangs pass and are bound in part"
            yield Found(entry.where, wrong, "Set filterVerb: filter-only, or give this entry all four verbs.")
        if verb == "filter-only" and binds:
            wrong = (
                "filterVerb is filter-only in an entry that binds: it refuses pods that need Escher but lack the mark"
            )
            yield Found(entry.where, wrong, "Set filterVerb: filter.")


def _ignorable(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if entry.said.get("ignorable"):
            wrong = "ignorable is true: while Escher is down, every node passes and gangs are bound in part"
            yield Found(entry.where, wrong, "Set ignorable: false; pods of these profiles then wait for Escher.")


def _whole_nodes(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if not entry.said.get("nodeCacheCapable"):
            wrong = "nodeCacheCapable is false: whole nodes, of some KB each, travel both ways in every call"
            yield Found(entry.where, wrong, "Set nodeCacheCapable: true; Escher watches nodes itself.")


def _unverified(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        authority = entry.tls.get("caFile") or entry.tls.get("caData")
        if entry.over_tls and (entry.tls.get("insecure") or (entry.said.get("enableHTTPS") and not authority)):
            said = "tlsConfig.insecure is true" if entry.tls.get("insecure") else "tlsConfig names no caFile"
            wrong = f"enableHTTPS, and {said}: the certificate is not verified, and any server can pose as Escher"
            yield Found(entry.where, wrong, "Set tlsConfig.caFile to the CA that signed it, and remove insecure.")


def _not_configured(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if entry.over_tls and not entry.said.get("enableHTTPS") and not entry.tls:
            wrong = "urlPrefix is https, without enableHTTPS and tlsConfig: only public authorities are trusted"
            yield Found(entry.where, wrong, "Set enableHTTPS: true and tlsConfig: {caFile, certFile, keyFile}.")


def _no_certificate(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        shown = entry.tls.get("certFile") or entry.tls.get("certData")
        if entry.over_tls and facts.settings.tls_client_ca is not None and not shown:
            wrong = (
                "tlsConfig names no certFile, and the service requires a client's certificate (tls_client_ca = "
                f"{facts.settings.tls_client_ca})"
            )
            yield Found(entry.where, wrong, "Set tlsConfig.certFile and keyFile to one that this authority signed.")


def _in_the_clear(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if entry.url.scheme != "http":
            continue
        if entry.said.get("enableHTTPS"):
            wrong = f"enableHTTPS is true, and urlPrefix {entry.said['urlPrefix']}: calls use http, unencrypted"
            yield Found(entry.where, wrong, "Write https:// in urlPrefix, and serve https (tls_certificate, tls_key).")
        elif not on_this_machine(entry.url.hostname or ""):
            wrong = f"urlPrefix is {entry.said['urlPrefix']}: all is sent unencrypted, and any client can call"
            yield Found(entry.where, wrong, "Use https:// with enableHTTPS and tlsConfig, or a loopback address.")


def _another_scheme(facts: Facts) -> Iterator[Found]:
    served = facts.settings.tls_certificate is not None
    for entry in facts.entries:
        if entry.url.scheme in ("http", "https") and entry.over_tls != served:
            speaks, asks = ("https", "http") if served else ("http", "https")
            wrong = f"urlPrefix is {entry.said['urlPrefix']}, but the service's settings make it serve {speaks}"
            mend = f"Write {speaks}:// there, or make the service serve {asks} (tls_certificate and tls_key)."
            yield Found(entry.where, wrong, mend)


def _no_weight(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if "prioritizeVerb" in entry.verbs and not (entry.said.get("weight") or 0) > 0:
            wrong = f"weight is {entry.said.get('weight')!r} with prioritizeVerb: kube-scheduler rejects the file"
            yield Found(entry.where, wrong, "Set weight: 1.")


def _not_the_mark(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        if not entry.of_every_pod and MANAGED not in entry.managed:
            wrong = f"managedResources names {', '.join(entry.managed)}, but not {MANAGED}, which marks pods"
            yield Found(entry.where, wrong, f"Name {MANAGED} there, with ignoredByScheduler: true.")


def _not_ignored(facts: Facts) -> Iterator[Found]:
    for entry in facts.entries:
        mark = entry.managed.get(MANAGED)
        if mark is not None and not mark.get("ignoredByScheduler"):
            wrong = f"{MANAGED} is not ignoredByScheduler: a pod that requests 1 of it waits forever, as no node has it"
            yield Found(entry.where, wrong, "Set ignoredByScheduler: true.")


_FILES = (Part.SCHEDULERS,)
CHECKS = (
    Check("time-out-unreadable", "`httpTimeout` that is not a duration, such as `60`", _no_duration, _FILES),
    Check("time-out-short", "`httpTimeout` missing, or below 30 s", _too_short, _FILES),
    Check(
        "time-out-differs",
        "`httpTimeout` that is not the service's `scheduler_http_timeout_seconds`",
        _another_time_out,
        _FILES,
    ),
    Check("address-wrong", "`urlPrefix` where the service answers no verbs", _elsewhere, _FILES),
    Check("verb-unknown", "a verb that the service does not know", _unknown_verb, _FILES),
    Check(
        "filter-verb-unfit",
        "`filter` in an entry that does not bind, `filter-only` in one that does",
        _unfit_filter,
        _FILES,
    ),
    Check("ignorable", "`ignorable: true`", _ignorable, _FILES),
    Check("nodes-sent-whole", "`nodeCacheCapable: false`", _whole_nodes, _FILES, Severity.NOTE),
    Check("certificate-unverified", "`enableHTTPS` without an authority", _unverified, _FILES),
    Check("https-not-configured", "an `https` address without `enableHTTPS` and `tlsConfig`", _not_configured, _FILES),
    Check(
        "client-certificate-missing",
        "no client certificate for a service with `tls_client_ca`",
        _no_certificate,
        (*_FILES, Part.SETTINGS),
    ),
    Check("in-the-clear", "`http` to another machine, or with `enableHTTPS`", _in_the_clear, _FILES),
    Check(
        "scheme-differs",
        "`http` or `https`, but the service serves the other",
        _another_scheme,
        (*_FILES, Part.SETTINGS),
    ),
    Check("weight-missing", "`prioritizeVerb` without a `weight`", _no_weight, _FILES),
    Check("mark-not-managed", "`managedResources` without `escher.dev/managed`", _not_the_mark, _FILES),
    Check("mark-counted", "`escher.dev/managed` without `ignoredByScheduler`", _not_ignored, _FILES, Severity.NOTE),
)
