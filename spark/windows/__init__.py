"""Matching by Spark's own expressions."""
