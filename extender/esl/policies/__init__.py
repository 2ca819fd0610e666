"""One policy for applications a file."""
