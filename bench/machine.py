"""The machine and the day of a measurement, as the results pages name them."""

from __future__ import annotations

import os
import platform
import re
import time


def kernel() -> str:
    """The kernel without patch level and build, such as `Linux 6.18`."""
    version = re.match(r"\d+\.\d+", platform.release())
    return f"{platform.system()} {version.group() if version else platform.release()}"


def machine_line() -> str:
    """The line of a page that names the machine and the day."""
    return f"- Machine: {platform.machine()}, {os.cpu_count()} cores, {kernel()}. Date: {time.strftime('%Y-%m-%d')}."
