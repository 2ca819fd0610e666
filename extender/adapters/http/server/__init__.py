"""The server: sockets, connections, TLS, request bodies, the fast path, and limits."""
