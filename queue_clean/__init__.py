"""queue-clean: removes finished messages."""
