"""The explorer: a local web page that shows beliefs, jumps and possible futures of trained models.

`library` is the only module here that imports from the rest of the package. `answers` computes what the page draws,
`server` sends it, and `export` writes it to files.
"""
