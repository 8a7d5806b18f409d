#!/usr/bin/env bash
# Set everything up in .venv and run the whole suite.
#
#   bash scripts/test.sh [pytest's own arguments, such as -k plan]      PYTHON=python3.12 chooses the Python
# shellcheck source=scripts/_venv.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv dev
exec "$VENV/bin/python" -m pytest "$@"
