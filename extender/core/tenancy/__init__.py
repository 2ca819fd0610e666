"""What namespaces may have and use, and how they share what there is."""
