"""What can be set, from files, command line and environment."""
