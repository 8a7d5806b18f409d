"""Architectures, one file each; `registry/models/` gives them their names."""
