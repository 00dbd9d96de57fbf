"""queue-send, the scheduler: decides which delivery starts when, and writes the log."""
