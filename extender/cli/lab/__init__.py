"""Commands of the lab: they start a control plane of their own."""
