"""queue-remote: delivers by SMTP."""
