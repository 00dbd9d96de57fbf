"""Logs as files: which there are, what in them is new, and their lines."""
