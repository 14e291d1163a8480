"""Results of commands: reasons, events of runs, options of jobs, exit codes. Types and constants alone."""
