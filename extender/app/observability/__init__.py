"""What tells people and programs what was decided: streams, logs, the flight recorder, invariants."""
