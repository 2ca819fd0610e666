"""Results: the raw files of a run, and the report made of them."""
