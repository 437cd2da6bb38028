#!/bin/sh
# Makes a Chromium available for the tests that open a report, where that needs no question: a browser on PATH is used
# as it is; else Debian's package is installed when we are root or sudo asks nothing. Never fails: without a browser
# those tests skip and say so.
set -u

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done

if ! command -v apt-get >/dev/null 2>&1; then
    echo "no Chromium on PATH and no apt-get to install it: the browser tests will be skipped" >&2
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    root=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    echo "no Chromium on PATH and no right to install it: the browser tests will be skipped" >&2
    exit 0
fi

echo "installing chromium for the browser tests ..."
export DEBIAN_FRONTEND=noninteractive
if ! { $root apt-get update -qq && $root apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1; then
    echo "chromium could not be installed: the browser tests will be skipped" >&2
fi
exit 0
