"""The log stays private and bounded, whatever is written and whatever the umask is."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from jackin_broker.logfile import LOG_BACKUPS, open_log


def test_a_full_log_is_turned_over_and_every_file_stays_private(short_tmp: Path) -> None:
    old_mask, old_level = os.umask(0o022), logging.getLogger().level
    handler = open_log(short_tmp / "state" / "broker.log", max_bytes=1000)
    try:
        for number in range(200):
            logging.getLogger("jackin_broker.test").warning("line %d", number)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(old_level)
        handler.close()
        os.umask(old_mask)
    files = sorted((short_tmp / "state").iterdir())
    assert len(files) == 1 + LOG_BACKUPS
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert all(path.stat().st_size <= 1000 for path in files)
    assert "line 199" in files[0].read_text()
