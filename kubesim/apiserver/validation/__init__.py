"""Defaults, admission and rules of the built-in kinds."""
