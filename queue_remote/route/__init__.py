"""Finds the addresses to try for a nexthop."""
