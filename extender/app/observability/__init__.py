"""Observability: decision events, decision stream and log, flight recorder, invariant checks."""
