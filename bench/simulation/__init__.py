"""A model of the world that mail is sent to, and two schedulers in it. Pure: a virtual clock, no I/O."""
