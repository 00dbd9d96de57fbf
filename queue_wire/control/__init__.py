"""Formats of control files."""
