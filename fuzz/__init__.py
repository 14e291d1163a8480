"""Coverage-guided fuzzing: ``make fuzz SECONDS=600``. See ``fuzz.targets`` for what is tried."""
