"""The cluster tool: fast tests of its parts, and end-to-end tests (marked e2e) of real clusters."""
