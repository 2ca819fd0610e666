"""Objects as tables, protobuf, OpenAPI and other forms."""
