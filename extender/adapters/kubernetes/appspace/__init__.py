"""Gangs and policies of applications on node status alone, without the service."""
