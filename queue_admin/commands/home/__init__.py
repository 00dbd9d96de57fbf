"""The commands that make, take over and set up a home."""
