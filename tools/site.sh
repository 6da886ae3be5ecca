#!/usr/bin/env bash
# usage: ./run site: builds the pages of docs/ into build/site and checks their links.
# The first time it installs mkdocs into .deps/site.
set -euo pipefail
. tools/common.sh

site=.deps/site
[ $# = 0 ] || die "usage: ./run site"

install_mkdocs() {
  [ -x $site/bin/python ] || python3 -m venv $site || return
  $site/bin/python -m pip --disable-pip-version-check install -r tools/site/requirements.txt
}

if ! cmp -s tools/site/requirements.txt $site/stamp; then
  step site-tools "Installing mkdocs in $site" install_mkdocs
  cp tools/site/requirements.txt $site/stamp
fi
step site "Building build/site" env NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $site/bin/python -m mkdocs build --strict --clean
say "Open build/site/index.html"
