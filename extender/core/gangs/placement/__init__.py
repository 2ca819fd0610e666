"""Placement: where the members of a gang fit together."""
