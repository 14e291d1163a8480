"""Checks of untrusted databases: how a file is opened, what a schema may contain, how much is read."""
