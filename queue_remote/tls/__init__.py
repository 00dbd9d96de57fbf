"""TLS to each target: policies, contexts, DANE and MTA-STS."""
