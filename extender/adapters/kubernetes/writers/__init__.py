"""Writes and reviews that the service sends to the API server."""
