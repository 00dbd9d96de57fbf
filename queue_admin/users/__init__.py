"""users/cdb, and what it and the .qmail files say about a local address."""
