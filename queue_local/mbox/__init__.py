"""Delivery into an mbox file, and its locks."""
