"""The formats of control files (qmail-control(5)) that two or more programs read, and the rules that they express."""
