"""The core: what seals, opens and compares. It decides alone whether a value is shown.

`seal/` decides, without I/O, how values are sealed and which are shown; `sealed/` has the procedures that
wrap a saver and call it; `base/sealing.py` tests whether a saver, a store or a cache seals what it stores.

A fault outside can lose or omit a value; only a fault here can show, forge or move one. docs/review.md
says in what order to read the modules, and where this does not hold yet.
"""
