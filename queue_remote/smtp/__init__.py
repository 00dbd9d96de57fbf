"""SMTP on the event loop: connections, their pool, and transactions."""
