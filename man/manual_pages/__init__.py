"""The manual pages: each is made of a program's --help, the registry of control files, and docs/."""
