#!/usr/bin/env bash
# Builds the wheel for one Python: bash ci/build.sh --python=3.11. The result is the one wheel in dist/.
set -euo pipefail
exec bash "$(dirname "${BASH_SOURCE[0]}")/../build.sh" wheel "$@"
