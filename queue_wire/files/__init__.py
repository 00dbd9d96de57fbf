"""The formats of files in the queue that two or more programs read."""
