"""The processes of queue-smtpd: the daemon, its workers and sockets, and the one session of a super-server."""
