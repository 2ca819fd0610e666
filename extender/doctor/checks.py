"""All checks, in the order in which findings are reported. docs/doctor.md has them as a table."""

from __future__ import annotations

from extender.doctor.findings import Check
from extender.doctor.rules import (
    entry_checks,
    install_checks,
    node_checks,
    pod_checks,
    profile_checks,
    replica_checks,
    service_checks,
)

CHECKS: tuple[Check, ...] = (
    *profile_checks.CHECKS,
    *entry_checks.CHECKS,
    *install_checks.CHECKS,
    *node_checks.CHECKS,
    *pod_checks.CHECKS,
    *replica_checks.CHECKS,
    *service_checks.CHECKS,
)
