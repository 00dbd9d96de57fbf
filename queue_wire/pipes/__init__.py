"""The formats on the pipes between the daemons: notices, jobs, reports, removals, and their framing."""
