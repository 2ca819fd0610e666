"""Ephemeral resources: setting them, their objects, node status, and transactions' intents."""
