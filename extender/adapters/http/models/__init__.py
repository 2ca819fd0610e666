"""Bodies and answers of the management API."""
