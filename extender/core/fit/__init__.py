"""Whether and how often a pod fits on a node, by resources, selectors, taints and labels."""
