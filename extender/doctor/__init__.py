"""What `escher doctor` knows of a set-up."""
