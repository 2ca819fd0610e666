"""Which pods leave for a gang."""
