"""queue-inject --batch: injects many messages from stdin, in one of four formats."""
