"""The life cycle of messages in queue-send, and their files."""
