"""queue-smtpd, the server of SMTP and QMTP: who may send what to whom, how fast, and what is recorded about it."""
