"""The months by name: articles of the generated world write dates with them, and who reads any article looks for them.

Kept here because `calendar.month_name` follows the language of the machine.
"""

from __future__ import annotations

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
"""In English, in the order of the year."""
