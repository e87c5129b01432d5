"""One file per figure or table of the paper, and one for users' own data."""
