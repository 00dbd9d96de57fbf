"""The SMTP protocol without I/O (RFC 5321 and its extensions): paths, replies, dot-stuffing, AUTH and the client."""
