"""The message as it is sent: its form, MIME conversions, DKIM."""
