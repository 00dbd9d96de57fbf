"""queuectl web: a page about a running suite, which only reads; and the HTTP server, which metrics uses, too."""
