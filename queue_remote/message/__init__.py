"""The message that is sent: its file, its properties, conversions to 7-bit, DKIM signatures."""
