"""Milters: programs that look at mail while it comes in, and may change or refuse it."""
