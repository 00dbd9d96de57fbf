"""The header of a new message: its fields, its addresses, and what is missing (RFC 5322, qmail-header(5))."""
