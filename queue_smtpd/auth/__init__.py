"""Passwords of queue-smtpd."""
