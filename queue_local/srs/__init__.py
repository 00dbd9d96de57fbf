"""Sender rewriting (SRS) for forwards to other hosts."""
