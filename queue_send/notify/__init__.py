"""Mail of queue-send's own: bounces and delay notices (RFC 3464)."""
