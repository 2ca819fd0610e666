"""Gangs: pods that are placed all or none, and all decisions about them. Pure, as all of the core."""
