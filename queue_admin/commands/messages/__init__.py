"""The commands that list, show and change messages."""
