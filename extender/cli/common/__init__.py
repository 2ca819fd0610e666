"""What all commands share: the terminal, requests to the service, files."""
