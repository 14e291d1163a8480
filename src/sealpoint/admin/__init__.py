"""What operators run: commands, maintenance of databases, edits of rings, and evidence. No agent loads it."""
