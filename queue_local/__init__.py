"""queue-local: delivers into mailboxes on this host."""
