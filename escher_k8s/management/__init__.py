"""The management API's calls: how each is asked, sent, repeated and read."""
