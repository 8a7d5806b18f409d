#!/usr/bin/env bash
# Set everything up in .venv and run the quickstart: pretrain, fine-tune with frozen attention, judge.
#
#   bash scripts/demo.sh [path=value ...]      PYTHON=python3.12 chooses the Python
#
# The run lands in runs/ at the root of the repository. Exits with 3 if a claim falls short.
# shellcheck source=scripts/_venv.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv
echo "running: provenzoo run quickstart${*:+ $*} (in $ROOT)" >&2
"$VENV/bin/provenzoo" run quickstart "$@"
echo "open the report in a browser; both files are below $ROOT" >&2
