"""Escher for Kubernetes: placement policies for real clusters without writing a scheduler."""

__version__ = "0.1.0"
