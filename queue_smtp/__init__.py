"""The SMTP protocol without I/O (RFC 5321 and its extensions): paths, replies, messages, AUTH, client and server."""
