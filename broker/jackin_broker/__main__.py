"""`python -m jackin_broker`: the same as the console script."""

from .cli import main

main()
