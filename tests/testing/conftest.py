"""Makes the broken environments importable by name, here and in the processes that the suite starts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
