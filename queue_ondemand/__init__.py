"""queue-ondemand: keeps mail of on-demand domains until it is asked for."""
