"""The lake: one Delta table of all tables, and the builds that read logs into it."""
