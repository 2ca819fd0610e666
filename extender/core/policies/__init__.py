"""EscherPolicies in the core: their types, and which of them match a pod."""
