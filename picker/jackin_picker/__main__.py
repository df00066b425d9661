"""`python -m jackin_picker`: how `jackin-broker` opens the picker, under its own interpreter."""

import sys

from .main import main

sys.exit(main())
