"""From a nexthop to the addresses to try."""
