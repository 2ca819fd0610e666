"""Hypothesis for all tests: the same examples on every run, and the blob that reproduces a failure in the report.

HYPOTHESIS_PROFILE=explore draws new examples, many of them, and prints the seed to run them again with.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ci", derandomize=True, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
