"""The recipient checker: it tells queue-smtpd, at RCPT, which local recipients queue-local would bounce."""
