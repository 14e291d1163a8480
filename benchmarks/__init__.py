"""Speed against LangGraph's own, as ratios in one run. `python benchmarks/run.py --help` says how."""
