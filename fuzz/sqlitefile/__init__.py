"""Hostile SQLite files, what they hold, and what the commands say of them.

`format` reads and writes pages, cells, records and varints. `honest` makes databases, `edits` forges
them, `oracle` reads the table b-trees by itself, `gaps` finds what nothing uses, and `commands` compares
what sealpoint reports.
"""
