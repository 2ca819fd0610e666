"""Reads, writes, patches, deletion and watches of stored objects."""
