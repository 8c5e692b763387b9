#!/usr/bin/env bash
# When the Hub cannot be reached, huggingface_hub lets the error of its HTTP client through: httpx2.ConnectError, which
# is no OSError (as ConnectionError is, and as the errors of requests were, which older versions let through) and no
# HfHubHTTPError, which is only raised for an answer of the server.
# Who is hurt: programs that catch OSError or HfHubHTTPError around the Hub: without a network they end in a traceback.
# Way around: also catch httpx2.HTTPError, the base of all errors of that client.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq huggingface_hub==2.4.0

# Nothing listens at port 9 of this machine.
env -u HF_HUB_OFFLINE HF_HOME="$folder/hub" HF_ENDPOINT=http://127.0.0.1:9 no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 \
    "$folder/venv/bin/python" -I - <<'PYTHON'
import importlib.metadata
import sys

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError

print(*(f"{name} {importlib.metadata.version(name)}" for name in ("huggingface_hub", "httpx2")), sep=", ")

try:
    HfApi().get_paths_info("a/b", ["x"], repo_type="dataset")
except Exception as error:
    kinds = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__]
    known = isinstance(error, OSError | HfHubHTTPError)
else:
    sys.exit("There is no error: something listens at port 9.")
print("Expected: an OSError such as ConnectionError, or an HfHubHTTPError.")
print(f"Seen: {', '.join(kinds[:-1])}")
if known or "ConnectError" not in kinds[0]:
    sys.exit("The behaviour is gone: the error is one that the library or Python names.")
PYTHON
