"""The commands that show the state of the suite and of its configuration."""
