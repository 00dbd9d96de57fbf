"""The sessions of queue-smtpd, without I/O: the rules, the lines of their log, and the Received field."""
