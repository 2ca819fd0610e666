"""Leases, and the EndpointSlice that leads to the leader."""
