"""queue-remote: delivers by SMTP, as queue-send's daemon or alone."""
