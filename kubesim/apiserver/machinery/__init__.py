"""Machinery: what all parts of an API server share: failures, requests, patches, selectors, metadata."""
