"""queue-inject --batch: many messages on stdin, in one of four formats."""
