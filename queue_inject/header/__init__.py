"""The header of a new message: addresses, rewriting, missing fields (RFC 5322, qmail-header(5))."""
