"""Gangs: pods that are placed all or none, and everything that is decided about them. Pure, as all of the core."""
