# Sourced in a copy of this checkout on a machine without a network: source tests/gpu/unpack_offline.sh FOLDER
# Takes what pack_offline.sh left in FOLDER and goes to a copy of the checkout that nobody else writes to; for this shell
# and what it starts. A second time it only goes there. Read from the environment: OFFLINE, where all of it is put.
OFFLINE=${OFFLINE:-${TMPDIR:-/tmp}/offline}
unpack_offline() {  # FOLDER
  mkdir -p "$OFFLINE/libraries" "$OFFLINE/unpacked" "$OFFLINE/src" || return
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$OFFLINE/site" \
    "$1"/*.whl || return
  local package
  for package in "$1"/deb/*.deb; do dpkg -x "$package" "$OFFLINE/unpacked" || return; done
  find "$OFFLINE/unpacked" -name '*.so*' -exec cp -P {} "$OFFLINE/libraries/" \;
  local inside=()
  case $1 in "$PWD"/*) inside=(--exclude="./${1#"$PWD"/}") ;; esac
  tar -cf "$OFFLINE/src.tar" --exclude=./.git "${inside[@]}" . && tar -xf "$OFFLINE/src.tar" -C "$OFFLINE/src" &&
    rm "$OFFLINE/src.tar" && tar -xzf "$1/git.tgz" -C "$OFFLINE/src" || return
  # Finds out which files are as they were committed.
  git -C "$OFFLINE/src" status --short && touch "$OFFLINE/ready"
}
if [ -e "$OFFLINE/ready" ] || unpack_offline "$(realpath "$1")"; then
  export PYTHONPATH=$OFFLINE/site:$OFFLINE/src AIPERF_LIBS=$OFFLINE/libraries
  cd "$OFFLINE/src" || return
else
  echo "could not unpack $1" >&2
  return 1
fi
