"""`python -m jackin_picker`: how `jackin-broker` opens the picker, under its own interpreter."""

from .main import main

main()
