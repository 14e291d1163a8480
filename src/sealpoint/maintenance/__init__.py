"""Upkeep of whole databases: rotate, verify, audit. Library functions that know no terminal."""
