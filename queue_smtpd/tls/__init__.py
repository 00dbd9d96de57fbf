"""TLS of queue-smtpd."""
