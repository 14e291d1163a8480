"""How any SQLite file is opened and guarded."""
