"""Kubelets and controllers, played: each follows the store, and writes through requests like anybody."""
