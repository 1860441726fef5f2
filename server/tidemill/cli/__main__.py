"""`python -m tidemill.cli`."""

from __future__ import annotations

import sys

from tidemill.cli.main import main

sys.exit(main())
