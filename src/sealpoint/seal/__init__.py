"""The core: what seals, opens and compares. It decides alone whether a value is shown.

`seal/` decides on bytes without I/O, `sealed/` has the procedures that wrap a saver and call it, and
`base/sealing.py` checks that a saver seals.

A fault outside can lose or omit a value; only a fault here can show, forge or move one. docs/review.md
says in what order to read the modules.
"""
