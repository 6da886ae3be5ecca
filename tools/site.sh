#!/usr/bin/env bash
# usage: ./run site: builds the pages of docs/ and the C++ reference into build/site, and checks their links.
# The first time it installs Doxygen, and mkdocs into .deps/site.
set -euo pipefail
. tools/common.sh

site=.deps/site
[ $# = 0 ] || die "usage: ./run site"

need_packages doxygen

install_mkdocs() {
  [ -x $site/bin/python ] || python3 -m venv $site || return
  $site/bin/python -m pip --disable-pip-version-check install -r tools/site/requirements.txt
}

if ! cmp -s tools/site/requirements.txt $site/stamp; then
  step site-tools "Installing mkdocs in $site" install_mkdocs
  cp tools/site/requirements.txt $site/stamp
fi
step site "Building build/site" env NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $site/bin/python -m mkdocs build --strict --clean
say "Open build/site/index.html. The search needs a server: python3 -m http.server -d build/site"
