"""Where the members of a gang fit together."""
