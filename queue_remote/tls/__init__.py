"""TLS to the peer: policies, DANE, MTA-STS, certificates."""
