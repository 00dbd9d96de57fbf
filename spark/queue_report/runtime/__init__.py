"""Spark and Java: a session, its settings, its errors and its progress."""
