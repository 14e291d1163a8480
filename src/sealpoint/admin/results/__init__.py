"""Results of commands: reasons, events of runs, options of jobs, exit codes. Only types and constants."""
