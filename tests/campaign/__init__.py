"""A campaign of faults: killed trainings, damaged files, fuzzed calls and wrong command lines.

`python -m tests.campaign` (or `make campaign`) runs all of it, prints a table and writes results/campaign.json. Every
case is drawn from a seed. `tests/test_campaign.py` runs a short version.
"""
