"""Client: requests to the API server, fenced if they are writes, and how the service proves who it is."""
