"""Translation: the JSON of pods and nodes into the core's facts, each field within its limit."""
