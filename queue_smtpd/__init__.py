"""The SMTP server's rules: who may send what to whom, how fast, and what is recorded about it. All of it is pure."""
