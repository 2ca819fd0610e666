"""Objects between JSON and the core's values, and the store of Escher's kinds."""
