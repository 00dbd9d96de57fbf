"""queuectl, the administrator's command, and queue-start."""
