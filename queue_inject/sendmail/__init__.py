"""The sendmail command."""
