#!/bin/sh
# Sees to it that this machine's python3 can make a virtual environment, before `make` makes one:
# installs what Debian and Ubuntu keep in a package of its own, after saying so, or names the command.
set -eu

command -v python3 >/dev/null || {
  echo 'error: python3 is missing; on Debian or Ubuntu run, as root: apt-get update && apt-get install python3 python3-venv' >&2
  exit 1
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: $(python3 --version) is too old: 3.11 or later is needed" >&2
  exit 1
}
python3 -c 'import ensurepip' 2>/dev/null && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo 'error: python3 can make no virtual environment; on Debian or Ubuntu run, as root: apt-get update && apt-get install python3-venv' >&2
  exit 1
fi
echo 'Debian packages that will be installed now: python3-venv'
export DEBIAN_FRONTEND=noninteractive
apt-get -y -qq -oDPkg::Lock::Timeout=300 update
apt-get -y -qq -oDPkg::Lock::Timeout=300 install --no-install-recommends python3-venv
