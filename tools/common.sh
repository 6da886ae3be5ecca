# Shared by the scripts behind ./run. They are sourced and started in the root of the clone.
export LC_ALL=C.UTF-8
logs=build/logs

say() { printf '%s\n' "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# step NAME WHAT COMMAND…: says WHAT, runs COMMAND into build/logs/NAME.log, and shows the log's end if it fails.
step() {
  local log=$logs/$1.log what=$2 start=$SECONDS
  shift 2
  mkdir -p "$logs"
  printf '%s … ' "$what"
  if "$@" >"$log" 2>&1 </dev/null; then
    printf 'done (%s)\n' "$(minutes $((SECONDS - start)))"
  else
    local status=$?
    printf 'FAILED (exit code %s). The end of %s:\n' "$status" "$log"
    { grep -n -m 5 -E '(error|Error|ERROR)[: ]' "$log" || true; echo "…"; tail -n 25 "$log"; } | sed 's/^/  | /'
    return "$status"
  fi
}

minutes() {
  if [ "$1" -lt 100 ]; then echo "$1 s"; else awk -v s="$1" 'BEGIN { printf "%.1f min\n", s / 60 }'; fi
}

# One compiler of LibTorch's headers needs up to 2 GB.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo "${FUNICULAR_JOBS:-$((cores < memory ? cores : memory))}"
}

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# Installs the Debian packages that are missing, or says how.
need_packages() {
  command -v dpkg-query >/dev/null || { say "No dpkg here: taking for granted $*."; return; }
  local missing sudo=
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || die "Packages are missing. Run this line, then the same command again:
  sudo apt-get install -y --no-install-recommends $missing"
    sudo=sudo
  fi
  step apt-update "Updating the lists of Debian packages" $sudo apt-get update
  # shellcheck disable=SC2086
  step apt-install "Installing $missing" \
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
