"""The SMTP protocol without I/O, from the client's side (RFC 5321 and its extensions)."""
