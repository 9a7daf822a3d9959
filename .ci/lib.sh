# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts beside it; sourced, not run.

set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Releases are built with this toolchain; go.mod asks for less, so that a
# machine with only that Go can build and test everything.
: "${RELEASE_TOOLCHAIN:=go1.27.3}"

# tool NAME ARGS... runs a program that tools/NAME/go.mod pins. Each has its own
# module, so that the requirements of none reach the product.
tool() {
  local name=$1
  shift
  go tool -modfile="tools/$name/go.mod" "$name" "$@"
}
