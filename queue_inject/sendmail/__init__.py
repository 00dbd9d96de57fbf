"""The sendmail command, which other programs call to send mail."""
