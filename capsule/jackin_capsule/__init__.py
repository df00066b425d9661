"""All that runs inside a capsule: stdlib only, `python3 -I -S`, Python 3.9 and later."""

# The capsule's programs are mounted without package metadata; a test holds it to pyproject.
VERSION = "0.1.0"
