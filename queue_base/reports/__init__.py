"""Reports about mail to its senders, in the form of RFC 3464."""
