"""Reading the log: where it is, its files, and the lines about one message."""
