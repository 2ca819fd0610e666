"""Mutants."""
from __future__ import annotations
MUTANTS = {}
