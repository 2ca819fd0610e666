"""Kubelets and controllers: each follows the store, and writes by ordinary requests."""
